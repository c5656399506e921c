"""Runs of a hive: what creates one, what is said of one, and the limits that all parties share."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Literal, Self

from msgspec import Meta, field

from arkml.errors import ProtocolError
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
    """The state of a run. The numbers of the ABI are `ExperimentStatus`."""

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
    """The choice for a new run whose name is taken."""

    NUMBER = "number"
    """A number is appended to the name."""

    JOIN = "join"
    """That run is joined, or resumed if it was stopped; its widths must be the same."""


class Role(StrEnum):
    """The use of a session's rows."""

    ACT = "act"
    EVALUATE = "eval"


class HealthReply(WireStruct, frozen=True):
    """The answer of a hive that is there."""

    service: Literal["arkml-hive"] = "arkml-hive"
    protocol: Count = PROTOCOL


class Refusal(WireStruct, frozen=True):
    """The answer to a request that the hive does not grant: one sentence."""

    error: str


class RunRequest(WireStruct, frozen=True, forbid_unknown_fields=True):
    """
    A run to be created.

    `configuration` is the guest's own, kept byte for byte. `checkpoint` is empty, or
    `run_id[@step]` or ORIGIN_FILE to start from. `seconds` is how long it may run, 0 for as long
    as it is used. With `requires_device` the run is refused if its learner does not find the device
    of the settings. The hive starts `workers` rollout workers, each a host with a guest of the
    uploaded `module`, the SHA-256 of one in hex, which is called `module_name`. `arguments` are
    those of a cmdlet, None for the entry point that its exports suggest. `module_id` is a name that
    the guest has for a module; it is kept and shown.
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


class RunInfo(WireStruct, frozen=True, forbid_unknown_fields=True):
    """
    One run in a list of runs.

    Times are nanoseconds since the Unix epoch, `ended_at` 0 for not yet. `reason` says why a run
    was aborted, or why its last learner ended. Of its `rows`, `lost` ones were acknowledged and are
    damaged in the log. `sessions` is the number that take part now. `branches` are the numbers of
    choices of the discrete actions, the last of the `actions`. `latest` is the newest value of each
    metric. `workers` rollout workers that the hive has started are alive. `module_id` is the name
    that the guest has for a module. A run that is pending may have a `place`, from 1, in the order
    of those that wait for a learner. Its learner takes `memory` bytes besides the pages of files,
    its directory `disk` bytes, both 0 until they are measured.
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


class WorkerInfo(WireStruct, frozen=True):
    """
    One rollout worker that a hive keeps running for a run.

    `number` counts from 0, `incarnation` the programs that were started in the place of dead ones.
    It has delivered `rows`, now `rows_per_second`, by policy version `policy_version`. `reason`
    says why it ended, or why its last incarnation did.
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

    `is_worker` is true for a rollout worker that the hive started. An `alive` session has sent a
    request within the lease; the last one is `idle_seconds` ago, None before the first since the
    hive was started. Of its rows, `rows` are in the log, now `rows_per_second`, `refused` ones were
    not accepted, and `dropped` ones were given up by its host. The last row was acted on by
    `policy_version`, 0 before any, which was published `policy_seconds` ago (0 where that is not
    known) and is `lag` versions behind the newest.
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
    One run with its settings; `best` is None before any policy was rated.

    `module` is the SHA-256 of the uploaded module that its `workers` run, empty without any. Of its
    `sessions`, those that were forgotten are left out. `owner` is the id of the token that started
    the run, empty for the operator's.
    """

    run: RunInfo
    settings: Settings
    best: Best | None
    module: str = ""
    workers: list[WorkerInfo] = field(default_factory=list)
    sessions: list[SessionInfo] = field(default_factory=list)
    owner: str = ""


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
