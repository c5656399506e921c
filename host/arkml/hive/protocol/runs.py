"""Runs as the control routes tell of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from arkml.errors import ProtocolError
from arkml.hive.protocol.settings import Settings

PROTOCOL = 1
"""The version of all routes below `/v1`."""

DEFAULT_PORT = 12_356

MAX_SECONDS = (1 << 63) - 1
"""That a run may last: guests are told in 64 bits."""

POLL_SECONDS = 25.0
"""How long the server holds a poll for a newer policy."""

MAX_NAMES = 256
"""Metrics of a guest that a run has names for."""

BATCH_ROWS = 4_096
BATCH_SECONDS = 0.05
"""A body of rows is closed when it has so many rows, or is so old."""

LEAST_AHEAD, MOST_AHEAD = 256, 2_048
"""Rows that a learner's pace admits beyond what its updates allow: no host waits for each body."""


class Status(StrEnum):
    """The state of a run. The numbers of the ABI are `ExperimentStatus`."""

    PENDING = "pending"
    """It was created, and no learner of it has said anything yet."""
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


class OnConflict(StrEnum):
    """What happens if a run of that name is there already."""

    NUMBER = "number"
    """A number is appended to the name."""

    JOIN = "join"
    """That run is joined, or resumed if it was stopped; its widths must be the same."""


class Role(StrEnum):
    """What a session does with its rows."""

    ACT = "act"
    EVALUATE = "eval"


@dataclass(frozen=True, slots=True)
class RunRequest:
    """
    A run to be created.

    `configuration` is the guest's own, kept byte for byte. `checkpoint` is empty, or
    `run_id[@step]` to start from. `seconds` is how long it may run, 0 for as long as it is used.
    """

    name: str
    game: str
    settings: Settings
    configuration: str = ""
    checkpoint: str = ""
    seconds: int = 0
    on_conflict: OnConflict = OnConflict.NUMBER

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RunRequest:
        """What `as_json` made. Raises InvalidSettings or ProtocolError."""
        try:
            found = dict(values)
            found["settings"] = Settings.from_json(found["settings"])
            found["on_conflict"] = OnConflict(found.get("on_conflict", "number"))
            request = cls(**found)
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"no run: {error}") from error
        for text, name in ((request.name, "name"), (request.game, "game")):
            if not isinstance(text, str) or len(text.encode()) > 512:
                raise ProtocolError(f"the {name} of a run is a text of at most 512 bytes")
        if not isinstance(request.configuration, str) or not isinstance(request.checkpoint, str):
            raise ProtocolError("configuration and checkpoint of a run are texts")
        if type(request.seconds) is not int or not 0 <= request.seconds <= MAX_SECONDS:
            raise ProtocolError(
                f"seconds is {request.seconds!r}: a whole number from 0 to {MAX_SECONDS}"
            )
        return request


@dataclass(frozen=True, slots=True)
class RunInfo:
    """
    One run as a list of them tells it.

    Times are nanoseconds since the Unix epoch, `ended_at` 0 for not yet. `reason` says why a run
    was aborted, or why a learner of it ended last. Of its `rows`, `lost` ones were acknowledged
    and are damaged in the log.
    """

    id: str
    name: str
    game: str
    status: Status
    features: int
    actions: int
    started_at: int
    ended_at: int = 0
    seconds: int = 0
    rows: int = 0
    lost: int = 0
    policy_version: int = 0
    n_opts: int = 0
    sessions: int = 0
    reason: str = ""
    seed: int = 0
    latest: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RunInfo:
        """What `as_json` made. Raises ProtocolError."""
        try:
            found = dict(values)
            found["status"] = Status(found["status"])
            return cls(**found)
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"no run: {error}") from error


@dataclass(frozen=True, slots=True)
class Best:
    """
    The best policy of a run so far.

    `by` says what found it so: "evaluation", or "training" for the mean of recent episodes.
    """

    by: str
    score: float
    version: int
    n_opts: int


@dataclass(frozen=True, slots=True)
class RunDetails:
    """One run as it is shown alone; `best` is None before any policy was rated."""

    run: RunInfo
    settings: Settings
    best: Best | None

    def as_json(self) -> dict[str, Any]:
        return {
            "run": self.run.as_json(),
            "settings": self.settings.as_json(),
            "best": None if self.best is None else asdict(self.best),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RunDetails:
        """What `as_json` made. Raises ProtocolError and InvalidSettings."""
        try:
            best = values["best"]
            return cls(
                RunInfo.from_json(values["run"]),
                Settings.from_json(values["settings"]),
                None if best is None else Best(**best),
            )
        except (KeyError, TypeError) as error:
            raise ProtocolError(f"no details of a run: {error}") from error
