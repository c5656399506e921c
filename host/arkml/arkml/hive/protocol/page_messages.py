"""Messages for people who look at runs: curves, histories, logs, settings, resources."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from arkml.hive.protocol.result_messages import SeriesPoint
from arkml.hive.protocol.wire import Count, WireStruct

MAX_POINTS = 1_000
"""The number of points of a curve in an answer."""

MAX_REPLY_POINTS = 250_000
"""The number of points that the curves of several runs in one answer may have."""

MAX_REASON = 400
"""The characters of a reason."""

HistoryKind = Literal[
    "started", "restart", "checkpoint", "best", "module", "warning", "goal", "stopped", "removed"
]

NoticeKind = Literal["diverging", "collapsed", "stuck", "slow", "restarted", "aborted", "goal"]
"""What a notice of a run is about: trouble, or its goal."""

ModuleState = Literal["handed over", "kept", "anew"]
"""What became of the state of a guest whose module was rebuilt."""

_Return = Annotated[float, Meta(ge=-1e300, le=1e300)]
_Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class CurvesQuery(WireStruct, frozen=True):
    """
    Parameters of curves: their `names`, separated by commas or as a JSON list of texts.

    Attributes:
        names: Names of metrics.
        x: The axis over which the points are spread evenly; "updates" stands for rows.
        points: Largest number of points of each curve, such as 200.
        since: Nanoseconds since the Unix epoch after which values count.

    """

    names: str
    x: Literal["rows", "updates", "time"] = "rows"
    points: Annotated[int, Meta(ge=4, le=MAX_POINTS)] = MAX_POINTS
    since: Count = 0


class ThinnedCurve(WireStruct, frozen=True):
    """
    The values of one metric by time, thinned to the lowest and highest of each part of the axis.

    `lowest` and `highest` are the extremes of all values, None without any.
    """

    name: str
    points: list[SeriesPoint]
    lowest: float | None = None
    highest: float | None = None


class CurvesReply(WireStruct, frozen=True):
    """The requested curves, in that order; an unknown name has an empty curve."""

    curves: list[ThinnedCurve]


class ManyCurvesQuery(WireStruct, frozen=True):
    """
    Parameters of the curves of several runs: their ids, separated by commas.

    The others are those of one run's curves; `MAX_REPLY_POINTS` bounds runs by names by points.
    """

    runs: str
    names: str
    x: Literal["rows", "updates", "time"] = "rows"
    points: Annotated[int, Meta(ge=4, le=MAX_POINTS)] = 200
    since: Count = 0


class RunCurves(WireStruct, frozen=True):
    """The curves of one of several runs; `error` says why there are none, and is empty else."""

    run: str
    curves: list[ThinnedCurve]
    error: str = ""


class ManyCurvesReply(WireStruct, frozen=True):
    """The curves of the requested runs, in that order."""

    runs: list[RunCurves]


class HistoryEntry(WireStruct, frozen=True):
    """
    An event of a run.

    Attributes:
        at: Its time, in nanoseconds since the Unix epoch.
        kind: Kind of the event.
        text: One sentence for people.
        about: Kind of the notice that it was for people who are away, None for other events.

    """

    at: Count
    kind: HistoryKind
    text: str
    about: NoticeKind | None = None


class ModuleReport(WireStruct, frozen=True):
    """
    A rebuilt module that a run is trained with from now on.

    Attributes:
        before: SHA-256 of the module before, in hex.
        after: SHA-256 of the module from now on.
        state: What became of the state of the guest; None if `reason` says so.
        reason: Why the guest has gone back to a module that it had before, else empty.

    """

    before: _Sha256
    after: _Sha256
    state: ModuleState | None = None
    reason: Annotated[str, Meta(max_length=MAX_REASON)] = ""


class HistoryQuery(WireStruct, frozen=True):
    """Parameters of events: nanoseconds since the Unix epoch after which they count."""

    since: Count = 0


class GoalReached(WireStruct, frozen=True):
    """
    The news that a training that plays for a run has reached the mean return at which it ends.

    Attributes:
        wanted: The mean return that ends the training.
        mean_return: The mean return that was reached.
        episodes: Number of the episodes of that mean.

    """

    wanted: _Return
    mean_return: _Return
    episodes: Count


class FramesReport(WireStruct, frozen=True):
    """The frames that a training has played for a run, of those that it was started for."""

    frames: Count


class HistoryReply(WireStruct, frozen=True):
    """The last events of a run, the oldest first."""

    events: list[HistoryEntry]


class LogQuery(WireStruct, frozen=True):
    """Parameters of a log: the largest number of its last lines."""

    lines: Annotated[int, Meta(ge=1, le=5_000)] = 500


class LogReply(WireStruct, frozen=True):
    """The last lines that the learners of a run have printed; `is_whole` if there are no more."""

    lines: list[str]
    is_whole: bool


class SettingsReply(WireStruct, frozen=True):
    """The defaults of all settings, and for each run the settings that differ from them."""

    defaults: dict[str, Any]
    runs: dict[str, dict[str, Any]]


class ProcessUse(WireStruct, frozen=True):
    """
    The use of one process, of a run's learner or of the hive itself, whose `run` is empty.

    `cpu` is the share of one core since the last measurement, `memory` is in bytes.
    """

    run: str
    cpu: float
    memory: Count


class GpuUse(WireStruct, frozen=True):
    """The use of one GPU: the share of its time, and its memory in bytes."""

    name: str
    share: float
    memory: Count
    total: Count


class UsageEntry(WireStruct, frozen=True):
    """
    The resources that a hive takes at a time; `disk` is in bytes, `gpus` lists the GPUs there are.
    """

    at: Count
    disk: Count
    processes: list[ProcessUse]
    gpus: list[GpuUse] = field(default_factory=list)


class UsageReply(WireStruct, frozen=True):
    """The last measurements of resources, the oldest first."""

    usage: list[UsageEntry]
