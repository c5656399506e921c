"""Messages about the results of a run: policies, metrics, evaluations, checkpoints, the audit."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from arkml.errors import ProtocolError
from arkml.hive.protocol.rows import Place
from arkml.hive.protocol.wire import Count, WireStruct

MAX_EPISODES = 10_000
"""The number of episodes in one evaluation."""

SnapshotKind = Literal["now", "best", "latest"]
"""The learner's present weights, the best policy so far, or the newest policy version."""

_Episodes = Annotated[list[float], Meta(min_length=1, max_length=MAX_EPISODES)]
_Successes = Annotated[list[bool], Meta(min_length=1, max_length=MAX_EPISODES)]


class PolicyQuery(WireStruct, frozen=True):
    """A poll for a policy version above `after`, which waits for at most `wait` seconds."""

    after: int = 0
    wait: float = 0.0


class SnapshotQuery(WireStruct, frozen=True):
    """
    Parameters of a download of a policy: which one, the present, the best or the latest published.
    """

    which: SnapshotKind = "now"


class MetricValue(NamedTuple):
    """The newest value of a metric, with the number of rows of the run at that time."""

    name: str
    value: float
    step: int


class MetricsReply(WireStruct, frozen=True):
    """The newest value of every metric."""

    metrics: list[MetricValue]


class SeriesQuery(WireStruct, frozen=True):
    """Parameters of a request for the values of one metric, from the step `since` on."""

    name: str
    since: int = 0


class SeriesPoint(NamedTuple):
    """One value of a metric; `at` is its time, in nanoseconds since the Unix epoch."""

    step: int
    value: float
    at: int


class SeriesReply(WireStruct, frozen=True):
    """The values of one metric, by step."""

    series: list[SeriesPoint]


class EvaluationStart(WireStruct, frozen=True):
    """A policy version that is about to play an evaluation."""

    version: int


class EvaluationReport(WireStruct, frozen=True):
    """
    Episodes that a policy version has played: the return and the length of each.

    Attributes:
        version: The version of the policy.
        returns: Sum of rewards of each episode.
        lengths: Steps of each episode.
        successes: True for each success, None if that is not known.
        rows: Rows of the run when the version was chosen, None for now.
        best_return: Mean return of the best version so far among the same agents of other
            behaviors, which its score is not compared with. None where its score is.

    """

    version: int
    returns: _Episodes
    lengths: _Episodes
    successes: _Successes | None = None
    rows: Count | None = None
    best_return: float | None = None

    def __post_init__(self) -> None:
        """Raise ProtocolError unless returns, lengths and successes are equal in number."""
        if self.successes is not None and len(self.successes) != len(self.returns):
            raise ProtocolError(
                f"an evaluation has as many returns as successes, not {len(self.returns)} and"
                f" {len(self.successes)}"
            )
        if len(self.returns) != len(self.lengths):
            raise ProtocolError(
                f"an evaluation has as many returns as lengths, not {len(self.returns)} and"
                f" {len(self.lengths)}"
            )


class EvaluationReply(WireStruct, frozen=True):
    """The answer to an evaluation: `best` if the version is the best so far."""

    best: bool


class CheckpointReply(WireStruct, frozen=True):
    """The name of a checkpoint that was saved now."""

    checkpoint: str


class CheckpointInfo(WireStruct, frozen=True):
    """
    A checkpoint of a run: its name and its number of updates.

    `best` marks the checkpoint that was saved when the best policy was rated. It has more updates
    than that policy, because the learner went on while the policy was rated.
    """

    name: str
    n_opts: Count
    best: bool


class CheckpointList(WireStruct, frozen=True):
    """The checkpoints of a run, the oldest first."""

    checkpoints: list[CheckpointInfo]


class SessionRows(WireStruct, frozen=True):
    """
    Numbers of one session's rows.

    Attributes:
        acked: Number of the last acknowledged body of rows, from 1.
        rows: Rows in the log.
        refused: Rows that the hive did not accept.
        dropped: Rows that the host dropped before sending them.

    """

    acked: Count
    rows: Count
    refused: Count
    dropped: Count


class ReplayAudit(WireStruct, frozen=True):
    """
    The rows of a run, as the server has counted them and as its learner holds them.

    Attributes:
        sessions: Counts by the index of the session.
        committed: The end of the log.
        held: Rows in the replay buffer.
        overwritten: Rows that have left the replay buffer.
        checksum: Checksum of the rows held, 0 unless rows are hashed (see `protocol.audit`).
        cursor: The position up to which the learner has read the log.

    """

    sessions: dict[str, SessionRows]
    committed: Place
    held: Count
    overwritten: Count
    checksum: int
    cursor: Place
