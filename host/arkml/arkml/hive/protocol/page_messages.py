"""Messages of the page where people look at runs: curves, events, logs, settings, resources."""

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
    Parameters of a request for curves of a run's metrics.

    Attributes:
        names: Names of metrics, separated by commas or as a JSON list of texts.
        x: The axis over which the points are spread evenly; "updates" has the same effect as
            "rows".
        points: Largest number of points of each curve, such as 200.
        since: Nanoseconds since the Unix epoch; earlier values are left out.

    """

    names: str
    x: Literal["rows", "updates", "time"] = "rows"
    points: Annotated[int, Meta(ge=4, le=MAX_POINTS)] = MAX_POINTS
    since: Count = 0


class ThinnedCurve(WireStruct, frozen=True):
    """
    The values of one metric over time, thinned: the lowest and highest of each part of the axis.

    Attributes:
        name: Name of the metric.
        points: The values that are left.
        lowest: The lowest of all values, None without any.
        highest: The highest of all values, None without any.

    """

    name: str
    points: list[SeriesPoint]
    lowest: float | None = None
    highest: float | None = None


class CurvesReply(WireStruct, frozen=True):
    """The requested curves, in the order of the request; an unknown metric has an empty curve."""

    curves: list[ThinnedCurve]


class ManyCurvesQuery(WireStruct, frozen=True):
    """
    Parameters of a request for curves of several runs.

    The product of the numbers of runs, names and points is at most `MAX_REPLY_POINTS`.

    Attributes:
        runs: Ids of the runs, separated by commas.
        names: Names of metrics, separated by commas or as a JSON list of texts.
        x: The axis over which the points are spread evenly; "updates" has the same effect as
            "rows".
        points: Largest number of points of each curve, such as 200.
        since: Nanoseconds since the Unix epoch; earlier values are left out.

    """

    runs: str
    names: str
    x: Literal["rows", "updates", "time"] = "rows"
    points: Annotated[int, Meta(ge=4, le=MAX_POINTS)] = 200
    since: Count = 0


class RunCurves(WireStruct, frozen=True):
    """The curves of one of the requested runs; `error` says why there are none, or is empty."""

    run: str
    curves: list[ThinnedCurve]
    error: str = ""


class ManyCurvesReply(WireStruct, frozen=True):
    """The curves of the requested runs, in the order of the request."""

    runs: list[RunCurves]


class HistoryEntry(WireStruct, frozen=True):
    """
    An event of a run, such as a restart of its learner.

    Attributes:
        at: The time of the event, in nanoseconds since the Unix epoch.
        kind: Kind of the event.
        text: One sentence for people.
        about: Kind of the notice that was sent about the event, None if none was.

    """

    at: Count
    kind: HistoryKind
    text: str
    about: NoticeKind | None = None


class ModuleReport(WireStruct, frozen=True):
    """
    A report that a run continues with a rebuilt module of its guest.

    Attributes:
        before: SHA-256 of the earlier module, in hex.
        after: SHA-256 of the rebuilt module, in hex.
        state: Whether the guest's state was kept, for example; None if there is a `reason`.
        reason: Why the guest has gone back to an earlier module, else empty.

    """

    before: _Sha256
    after: _Sha256
    state: ModuleState | None = None
    reason: Annotated[str, Meta(max_length=MAX_REASON)] = ""


class HistoryQuery(WireStruct, frozen=True):
    """Parameters of a request for events: those after `since`, nanoseconds since the Unix epoch."""

    since: Count = 0


class GoalReached(WireStruct, frozen=True):
    """
    A report that a training of a run has reached the mean return at which it ends.

    Attributes:
        wanted: The mean return that ends the training.
        mean_return: The mean return that was reached.
        episodes: Number of the episodes that the mean is taken over.

    """

    wanted: _Return
    mean_return: _Return
    episodes: Count


class FramesReport(WireStruct, frozen=True):
    """The number of frames played so far by a training that ends after a number of frames."""

    frames: Count


class HistoryReply(WireStruct, frozen=True):
    """The last events of a run, the oldest first."""

    events: list[HistoryEntry]


class LogQuery(WireStruct, frozen=True):
    """Parameters of a request for a log: the largest number of its last lines."""

    lines: Annotated[int, Meta(ge=1, le=5_000)] = 500


class LogReply(WireStruct, frozen=True):
    """The last lines that the learners of a run have printed; `is_whole` if these are all lines."""

    lines: list[str]
    is_whole: bool


class SettingsReply(WireStruct, frozen=True):
    """
    The defaults of all settings, and for each run, by its id, the settings that differ from them.
    """

    defaults: dict[str, Any]
    runs: dict[str, dict[str, Any]]


class ProcessUse(WireStruct, frozen=True):
    """
    The resources that one process uses: a run's learner, or the hive, whose `run` is empty.

    `cpu` is the number of processors used since the last measurement, such as 0.5; `memory` is in
    bytes.
    """

    run: str
    cpu: float
    memory: Count


class GpuUse(WireStruct, frozen=True):
    """The use of one GPU: the share of time in which it was busy, and its memory in bytes."""

    name: str
    share: float
    memory: Count
    total: Count


class UsageEntry(WireStruct, frozen=True):
    """
    A measurement of the resources that a hive uses.

    Attributes:
        at: Nanoseconds since the Unix epoch.
        disk: Bytes on disk.
        processes: The use of each process.
        gpus: The use of each GPU of the machine.

    """

    at: Count
    disk: Count
    processes: list[ProcessUse]
    gpus: list[GpuUse] = field(default_factory=list)


class UsageReply(WireStruct, frozen=True):
    """The last measurements of resources, the oldest first."""

    usage: list[UsageEntry]
