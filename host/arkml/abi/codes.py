"""The numbers of the ABI: every enum that crosses the boundary."""

from __future__ import annotations

from enum import IntEnum, unique


@unique
class ErrorCode(IntEnum):
    """What an import answers. The gaps are part of the ABI; no other number is ever returned."""

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
    Where an observation stands in its episode.

    Initial is the first observation of an agent id. Terminal: the agent's own doing ended the
    episode. Interrupted: something else cut it, such as a time limit. After both the id is gone.
    """

    RUNNING = 0
    TERMINAL = 1
    INTERRUPTED = 2
    INITIAL = 3


@unique
class SnapshotFormat(IntEnum):
    """How a policy is stored. Tensorflow snapshots are no longer supported."""

    ONNX = 0
    TENSORFLOW = 1
    CERVO = 2


@unique
class ExperimentStatus(IntEnum):
    """What the hive is doing with an experiment."""

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
    """How much a log line matters."""

    ERROR = 0
    WARN = 1
    INFO = 2
    DEBUG = 3
    TRACE = 4


@unique
class TimeFormat(IntEnum):
    """How a time is rendered for people. Number 6 is not used."""

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
    """The machine an experiment asks for."""

    CPU = 0
    GPU = 1
    LARGE_GPU = 2
