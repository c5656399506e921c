"""
Runs of a hive: requests for runs, descriptions of runs, and the limits that all parties share.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Literal, Self

from msgspec import UNSET, Meta, UnsetType, field

from arkml.errors import ProtocolError
from arkml.hive.protocol.run_origin import RunGoal, RunOrigin
from arkml.hive.protocol.settings import Settings
from arkml.hive.protocol.wire import MAX_COUNT, Count, PolicyVersion, WireStruct

PROTOCOL = 1
"""The version of all routes, which begin with it: `/v1`."""

DEFAULT_PORT = 12_356

MAX_SECONDS = MAX_COUNT
"""The longest time, in seconds, that a run may last: guests have 64 bits for it."""

POLL_SECONDS = 25.0
"""Seconds that the server holds a poll for a newer policy version."""

MAX_NAMES = 256
"""The number of metric names that a run keeps."""

MAX_NAME_BYTES = 512
"""The longest name of a run, a game or a module, in bytes of UTF-8."""

MAX_CONFIGURATION_BYTES = 1 << 20
"""The longest configuration of a new run, and arguments of its workers, in bytes of UTF-8."""

BATCH_ROWS = 4_096
BATCH_SECONDS = 0.05
"""A body of rows is closed when it has BATCH_ROWS rows, or is BATCH_SECONDS old."""

LEAST_AHEAD, MOST_AHEAD = 256, 2_048
"""Rows that a learner admits beyond what its updates allow, so that no host waits for each body."""

DOCUMENT_NAME = "run.json"
"""The file with the state of a run, in its directory."""

START_NAME = "origin.json"
"""The file with where a run came from, in its directory."""

BEST_NAME = "best.onnx"
"""The file of a run's best policy version, in its directory."""

PUBLISHED_NAME = "published"
"""The folder with the newest policy versions of a run, in its directory."""

ORIGIN_FILE = "origin.safetensors"
"""
A checkpoint that an embedded hive was given as a file, in its directory; a `RunRequest` names it.

It is not the name of a run, which has no dot.
"""

_SHA256 = re.compile("[0-9a-f]{64}")


def require_protocol(client: int, hive: int) -> None:
    """Raise ProtocolError unless a client and a hive have the same version of the protocol."""
    if client == hive:
        return
    older, newer = ("client", "hive") if client < hive else ("hive", "client")
    raise ProtocolError(
        f"the client has version {client} of the protocol of hives, and the hive version {hive}:"
        f" use a release of arkml for the {older} that is as new as that of the {newer}"
    )


class Status(StrEnum):
    """The state of a run. Guests see it as the number in `ExperimentStatus`."""

    PENDING = "pending"
    """It waits for the place of its learner, or its first learner has not sent a message yet."""
    STARTING = "starting"
    """A learner begins, or has not published a policy yet."""
    RUNNING = "running"
    PAUSED = "paused"
    """No host takes part, and its learner rests."""
    TERMINATING = "terminating"
    """It was stopped, and its learner writes the last checkpoint."""
    STOPPED = "stopped"
    NOT_FOUND = "not_found"
    """Its directory was removed."""
    ABORTED = "aborted"
    UNHEALTHY = "unhealthy"
    """Its learner has died, and the next one has not begun."""


OVER = frozenset({Status.TERMINATING, Status.STOPPED, Status.NOT_FOUND, Status.ABORTED})
"""The states of a run in which rollout workers end."""


class OnConflict(StrEnum):
    """The action to take when a new run has the name of an existing one."""

    NUMBER = "number"
    """A number is appended to the name."""

    JOIN = "join"
    """The existing run is joined, or resumed if it was stopped; its widths must be the same."""


class Role(StrEnum):
    """The purpose of a session's rows: to train the policy, or to evaluate it."""

    ACT = "act"
    EVALUATE = "eval"


class HealthReply(WireStruct, frozen=True):
    """The answer of a hive to GET /health."""

    service: Literal["arkml-hive"]
    protocol: Count = PROTOCOL


class Refusal(WireStruct, frozen=True):
    """The answer to a request that the hive does not grant: one sentence."""

    error: str


class RunRequest(WireStruct, frozen=True, forbid_unknown_fields=True):
    """
    A request to create a run.

    Attributes:
        name: Name of the run.
        game: Name of the game.
        settings: The settings of its learner.
        configuration: The guest's own configuration, kept byte for byte.
        checkpoint: The checkpoint to start from: `run_id[@step]`, such as `7f3a@2000`, or
            ORIGIN_FILE; empty for none.
        seconds: Seconds that the run may last, 0 for as long as it is used.
        on_conflict: The action to take if the name is taken.
        requires_device: True refuses the run if its learner does not find the device of the
            settings.
        workers: Number of rollout workers that the hive starts, each a host with a guest of
            `module`.
        module: SHA-256 of the uploaded module, in hex, or empty.
        module_name: File name of the module.
        module_id: The guest's own name for a module; it is kept and shown.
        arguments: Arguments of a cmdlet, None for the entry point that the exports suggest.
        origin: The origin of the run. Unset for hives of older releases, which do not know it.
        goal: The goal of the command that starts or resumes the run; unset like `origin`.

    """

    name: str
    game: str
    settings: Settings
    configuration: str = ""
    checkpoint: str = ""
    seconds: Annotated[int, Meta(ge=0, le=MAX_SECONDS)] = 0
    on_conflict: OnConflict = OnConflict.NUMBER
    requires_device: bool = False
    workers: Count = 0
    module: str = ""
    module_name: str = ""
    module_id: str = ""
    arguments: str | None = None
    origin: RunOrigin | UnsetType = UNSET
    goal: RunGoal | UnsetType = UNSET

    @classmethod
    def from_json(cls, values: object) -> Self:
        """Return the request with these values. Raises ProtocolError and InvalidSettings."""
        request = super().from_json(values)
        named = ("name", "game", "module_name", "module_id")
        for name, text in ((one, getattr(request, one)) for one in named):
            if len(text.encode()) > MAX_NAME_BYTES:
                raise ProtocolError(
                    f"{name} is {text[:80]!r}... of {len(text.encode())} bytes: it takes a text of"
                    f" at most {MAX_NAME_BYTES}"
                )
        if request.module:
            require_sha256("module", request.module)
        elif request.workers:
            raise ProtocolError(
                f"workers is {request.workers}, and module is empty: it takes the SHA-256 of the"
                " uploaded module that they run"
            )
        return request


def require_sha256(name: str, text: str) -> None:
    """Raise ProtocolError unless `text`, the value called `name`, is a SHA-256 in lower hex."""
    if not _SHA256.fullmatch(text):
        raise ProtocolError(f"{name} is {text[:80]!r}: it takes a SHA-256, 64 digits of lower hex")


class RunInfo(WireStruct, frozen=True):
    """
    One run in a list of runs.

    Times are nanoseconds since the Unix epoch. Fields that are unset are not sent, because hosts of
    older releases refuse fields that they do not know.

    Attributes:
        id: Id of the run.
        name: Name of the run.
        game: Name of the game.
        status: State of the run.
        features: Number of features of a row.
        actions: Number of actions of a row, including one for each branch.
        started_at: Start of the run.
        ended_at: End of the run, 0 before it.
        seconds: Seconds that the run may last, 0 for as long as it is used.
        rows: Number of its rows.
        lost: Number of acknowledged rows that are damaged in the log.
        policy_version: The newest version of the policy.
        n_opts: Number of updates of the policy.
        sessions: Number of sessions that take part now.
        reason: The reason why the run was aborted, or why its last learner ended.
        seed: Seed of the run.
        branches: Numbers of choices of the discrete actions, which are the last of the `actions`.
        latest: The newest value of each metric.
        workers: Number of live rollout workers that the hive has started.
        module_id: The guest's own name for a module.
        place: Position of a pending run, from 1, among the runs that wait for a learner, or 0.
        memory: Bytes that its learner uses, without the pages of files; 0 before a measurement.
        disk: Bytes of its directory; 0 before a measurement.
        title: Shown in place of the name, unset to show the name.
        tags: Tags of the run, unset without any.
        starred: True if the run was starred, else unset.
        archived: True if the run is hidden in lists, else unset.
        goal: The goal of the command that has started or resumed the run, unset if not known.
        frames: Frames that this command has played so far, unset until its host reports them.
        guest: The first eight digits of the SHA-256 of the guest, unset if not known.

    """

    id: str
    name: str
    game: str
    status: Status
    features: Count
    actions: Count
    started_at: Count
    ended_at: Count = 0
    seconds: Count = 0
    rows: Count = 0
    lost: Count = 0
    policy_version: PolicyVersion = 0
    n_opts: Count = 0
    sessions: Count = 0
    reason: str = ""
    seed: Count = 0
    branches: tuple[Count, ...] = ()
    latest: dict[str, float] = field(default_factory=dict)
    workers: Count = 0
    module_id: str = ""
    place: Count = 0
    memory: Count = 0
    disk: Count = 0
    title: str | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    starred: bool | UnsetType = UNSET
    archived: bool | UnsetType = UNSET
    goal: RunGoal | UnsetType = UNSET
    frames: Count | UnsetType = UNSET
    guest: str | UnsetType = UNSET

    @property
    def shown_name(self) -> str:
        """The title, or the name if there is no title."""
        return self.title or self.name


def find_run(runs: Sequence[RunInfo], wanted: str) -> RunInfo | None:
    """Return the run whose id is `wanted`, or the first one of that name; None if there is none."""
    by_id = next((run for run in runs if run.id == wanted), None)
    return by_id or next((run for run in runs if run.name == wanted), None)


class WorkerInfo(WireStruct, frozen=True):
    """
    One rollout worker that a hive keeps running for a run.

    Attributes:
        number: Number of the worker, from 0.
        incarnation: Number of programs that were started to replace dead ones.
        is_alive: True while its program runs.
        rows: Rows that it has delivered.
        rows_per_second: The present rate of rows.
        policy_version: Version of the policy that it acts with.
        reason: The reason why it ended, or why its last incarnation did.

    """

    number: Count
    incarnation: Count = 0
    is_alive: bool = False
    rows: Count = 0
    rows_per_second: float = 0.0
    policy_version: PolicyVersion = 0
    reason: str = ""


class SessionInfo(WireStruct, frozen=True):
    """
    One session of a run, as its hive sees it.

    Attributes:
        index: Number of the session in its run.
        role: Purpose of its rows.
        is_worker: True for a rollout worker that the hive started.
        alive: True if it has sent a request lately, within the time after which the hive counts it
            as gone.
        idle_seconds: Seconds since the last request, None before the first since the hive started.
        rows: Number of its rows in the log.
        rows_per_second: The present rate of rows.
        refused: Number of rows that were not accepted.
        dropped: Number of rows that its host gave up.
        policy_version: Version that acted on the last row, 0 before any row.
        lag: Number of versions between that version and the newest.
        policy_seconds: Seconds since that version was published, 0 if that is not known.

    """

    index: Count
    role: Role
    is_worker: bool = False
    alive: bool = False
    idle_seconds: float | None = None
    rows: Count = 0
    rows_per_second: float = 0.0
    refused: Count = 0
    dropped: Count = 0
    policy_version: PolicyVersion = 0
    lag: Count = 0
    policy_seconds: float = 0.0


class Best(WireStruct, frozen=True, forbid_unknown_fields=True):
    """
    The best policy of a run so far.

    `by` is the source of its score: "evaluation", or "training" for the mean of recent episodes.
    """

    by: str
    score: float
    version: Count
    n_opts: Count


class RunDetails(WireStruct, frozen=True):
    """
    One run with its settings, workers and sessions.

    Attributes:
        run: The run.
        settings: The settings of its learner.
        best: The best policy so far, None before any policy was rated.
        module: SHA-256 of the uploaded module of its `workers`, empty without any.
        workers: Its rollout workers.
        sessions: Its sessions, without forgotten ones.
        owner: Id of the token that started the run, empty for the operator's.
        owner_name: Name of that token, empty if it is not known.
        note: What people have noted about the run.
        note_revision: Number of changes of the note.
        origin: Where the run came from, None if that is not known.

    """

    run: RunInfo
    settings: Settings
    best: Best | None
    module: str = ""
    workers: list[WorkerInfo] = field(default_factory=list)
    sessions: list[SessionInfo] = field(default_factory=list)
    owner: str = ""
    owner_name: str = ""
    note: str = ""
    note_revision: Count = 0
    origin: RunOrigin | None = None


class ModuleQuery(WireStruct, frozen=True):
    """Parameters of a request for a module; rollout workers send `for_workers` other than 0."""

    for_workers: int = 0


class ModuleReply(WireStruct, frozen=True):
    """An uploaded module: its SHA-256 and its bytes; `created` is false if it was there before."""

    sha256: str
    size: Count
    created: bool


class RunList(WireStruct, frozen=True):
    """All runs, the newest first."""

    runs: list[RunInfo]


class RunReply(WireStruct, frozen=True):
    """The run that a request is about."""

    run: RunInfo


class CreatedRun(WireStruct, frozen=True):
    """The run that a request created, or joined if `created` is false."""

    run: RunInfo
    created: bool


class DeleteQuery(WireStruct, frozen=True):
    """Parameters of deleting a run; `force` other than 0 stops it first."""

    force: int = 0


class DeletedRun(WireStruct, frozen=True):
    """The id of a run that was deleted."""

    deleted: str
