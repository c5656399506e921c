"""Messages of a learner, read into values for its run to apply."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from arkml.hive.protocol.histograms import MOST_HISTOGRAMS, Histogram, checked
from arkml.hive.protocol.rows import Place
from arkml.hive.protocol.wire import Message

_BEGINNING = Place(0, 0)


@dataclass(frozen=True, slots=True)
class Progress:
    """
    The state that a learner reports.

    Attributes:
        cursor: The position in the log up to which the learner has read.
        n_opts: The number of updates of the policy.
        admitted: The number of rows that hosts may have sent in all.
        holds: True while hosts may send no more rows than the run already has.
        rows: The number of rows up to `cursor`.

    """

    cursor: Place = _BEGINNING
    n_opts: int = 0
    admitted: int = 0
    holds: bool = False
    rows: int = 0

    def after(self, event: LearnerStarted | LearnerProgress | CheckpointSaved) -> Progress:
        """Return the state once the learner has sent an event."""
        match event:
            case LearnerStarted(cursor=cursor, n_opts=n_opts):
                return replace(self, cursor=cursor, n_opts=n_opts, holds=False)
            case LearnerProgress(progress=progress):
                return progress
            case CheckpointSaved(n_opts=n_opts):
                return replace(self, n_opts=n_opts)
            case _:
                assert_never(event)


@dataclass(frozen=True, slots=True)
class LearnerStarted:
    """The first message of a learner's process; `cursor` is where it continues to read the log."""

    cursor: Place
    n_opts: int
    device: str
    pid: int


@dataclass(frozen=True, slots=True)
class LearnerProgress:
    """
    A regular report of a learner.

    `turn_seconds` is the time since the learner's main loop began its latest iteration.
    """

    progress: Progress
    turn_seconds: float


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """A policy that the learner has written; `file` is its path within the run's directory."""

    file: str
    sha256: str
    n_opts: int


@dataclass(frozen=True, slots=True)
class MetricPoints:
    """Values of metrics: name, step, value; for example "train/actor_loss", 4096 and 0.5."""

    points: list[tuple[str, int, float]]


@dataclass(frozen=True, slots=True)
class CandidateNamed:
    """A policy version that the server keeps until training episodes have rated it."""

    version: int


@dataclass(frozen=True, slots=True)
class CandidateRated:
    """The mean return of episodes of training that began under a policy version."""

    version: int
    score: float


@dataclass(frozen=True, slots=True)
class HistogramsMade:
    """Histograms of a sample of rows, when the run had `rows` rows."""

    rows: int
    histograms: list[Histogram]


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A checkpoint was written after `n_opts` updates."""

    n_opts: int


@dataclass(frozen=True, slots=True)
class LearnerReply:
    """The answer to request number `request`."""

    request: int
    fields: Message


@dataclass(frozen=True, slots=True)
class LearnerFailing:
    """The last message of a learner that cannot continue."""

    reason: str


@dataclass(frozen=True, slots=True)
class LearnerEnded:
    """
    The learner's process has ended, and a new one will be started.

    `has_diverged`: it has ended because losses or weights were not finite.
    """

    reason: str
    has_diverged: bool = False


@dataclass(frozen=True, slots=True)
class LearnerGivenUp:
    """The learner's process has ended, and no other one will be started."""

    reason: str


RunEvent = (
    LearnerStarted
    | LearnerProgress
    | PolicyFile
    | MetricPoints
    | CandidateNamed
    | CandidateRated
    | HistogramsMade
    | CheckpointSaved
    | LearnerEnded
    | LearnerGivenUp
)
"""An event that changes the run."""

LearnerMessage = (
    LearnerStarted
    | LearnerProgress
    | PolicyFile
    | MetricPoints
    | CandidateNamed
    | CandidateRated
    | HistogramsMade
    | CheckpointSaved
    | LearnerReply
    | LearnerFailing
)
"""A message that a learner sends."""


def read_message(message: Message) -> LearnerMessage | None:
    """
    Return the value of a learner's message, None for a kind that is unknown.

    Raises KeyError, TypeError and ValueError for a message without the fields of its kind.
    """
    match message["kind"]:
        case "hello":
            return LearnerStarted(
                _cursor(message),
                int(message["n_opts"]),
                str(message["device"]),
                int(message["pid"]),
            )
        case "progress":
            progress = Progress(
                _cursor(message),
                int(message["n_opts"]),
                int(message["admits"]),
                bool(message["hold"]),
                int(message.get("rows", 0)),
            )
            return LearnerProgress(progress, float(message.get("turn_seconds", 0.0)))
        case "policy":
            return read_policy_file(message)
        case "metrics":
            return MetricPoints([(str(n), int(s), float(v)) for n, s, v in message["points"]])
        case "candidate":
            return CandidateNamed(int(message["version"]))
        case "rated":
            return CandidateRated(int(message["version"]), float(message["score"]))
        case "histograms":
            histograms = message["histograms"][: 2 * MOST_HISTOGRAMS]
            return HistogramsMade(int(message["rows"]), [checked(one) for one in histograms])
        case "checkpoint":
            return CheckpointSaved(int(message["n_opts"]))
        case "reply":
            return LearnerReply(int(message["req"]), message)
        case "fatal":
            return LearnerFailing(str(message["reason"]))
        case _:
            return None


def read_policy_file(message: Message) -> PolicyFile:
    """
    Return the policy file that a message names; its content is checked when it is read.

    Raises TypeError and ValueError unless `n_opts` is a number.
    """
    return PolicyFile(
        str(message.get("file", "")), str(message.get("sha256")), int(message.get("n_opts", 0))
    )


def _cursor(message: Message) -> Place:
    segment, offset = message["cursor"]
    return Place(int(segment), int(offset))
