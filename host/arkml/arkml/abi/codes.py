"""The enums of the ABI: every number with a name that crosses the boundary."""

from __future__ import annotations

from enum import IntEnum, unique


@unique
class ErrorCode(IntEnum):
    """The result of an import. The numbers between these, such as 1 and 3, are never returned."""

    SUCCESS = 0
    API_NOT_AVAILABLE = 2
    INTERNAL_ERROR = 4
    INVALID_ARGUMENTS = 5
    NOT_FOUND = 6
    UNAVAILABLE = 7
    HTTP_REQUEST_FAILED = 8


@unique
class EpisodeState(IntEnum):
    """
    The place of an observation in its episode.

    Initial marks the first observation of an agent id. Terminal: the episode ended by its own
    rules. Interrupted: something else cut it short, such as a time limit. After Terminal and
    Interrupted, the id no longer names an agent.
    """

    RUNNING = 0
    TERMINAL = 1
    INTERRUPTED = 2
    INITIAL = 3


EPISODE_ENDS = (EpisodeState.TERMINAL, EpisodeState.INTERRUPTED)
"""The states of the last row of an episode."""


@unique
class SnapshotFormat(IntEnum):
    """The file format of a policy. Tensorflow snapshots are no longer supported."""

    ONNX = 0
    TENSORFLOW = 1
    CERVO = 2


@unique
class ExperimentStatus(IntEnum):
    """The state of an experiment on its hive."""

    PENDING = 0
    STARTING = 1
    RUNNING = 2
    TERMINATING = 3
    STOPPED = 4
    NOT_FOUND = 5
    ABORTED = 6
    UNHEALTHY = 7


@unique
class LogLevel(IntEnum):
    """The severity of a log line."""

    ERROR = 0
    WARN = 1
    INFO = 2
    DEBUG = 3
    TRACE = 4


@unique
class TimeFormat(IntEnum):
    """A human-readable format of a time. Number 6 is not used."""

    RELATIVE_FRIENDLY = 0
    YEAR = 1
    YEAR_MONTH = 2
    DATE = 3
    HOUR_MINUTE = 4
    HOUR_MINUTE_SECOND = 5
    ISO_DATE = 7
    ISO_DATE_TIME = 8
    ISO_DATE_TIME_UTC = 9


@unique
class HardwareType(IntEnum):
    """The kind of machine that an experiment asks for."""

    CPU = 0
    GPU = 1
    LARGE_GPU = 2
