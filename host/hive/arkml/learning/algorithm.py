"""The protocol of a learning algorithm, and the values it exchanges with its learner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from arkml.batches import Floats
from arkml.errors import HiveError
from arkml.hive.protocol.audit import checksum
from arkml.hive.protocol.rows import RowColumns
from arkml.hive.protocol.settings import Settings
from arkml.learning.normalizer import Normalizer
from arkml.learning.trajectories import FinishedEpisodes


class Diverged(HiveError):
    """Raised when losses or weights are no longer finite."""


class Layer(NamedTuple):
    """A linear layer. weight: float32, [inputs, outputs]. bias: float32, [outputs]."""

    weight: Floats
    bias: Floats


@dataclass(frozen=True, slots=True)
class State:
    """
    The state of an algorithm, complete enough to continue from.

    `tensors` are of the types in `checkpoints.DTYPES` and finite, with names such as
    "actor/0/weight". `plain` has JSON values only.
    """

    tensors: Mapping[str, npt.NDArray[Any]]
    plain: Mapping[str, Any]


class PolicyModel(NamedTuple):
    """A policy as ONNX, after `n_opts` updates; it is not published if a weight is NaN."""

    model: bytes
    n_opts: int


class Added(NamedTuple):
    """
    The result of adding rows.

    returns: float64, [m], discounted rewards of the chains, at every row that follows another one;
    extreme rewards are clipped to the bounds of the store.
    """

    returns: npt.NDArray[np.float64]
    episodes: FinishedEpisodes


class HeldRows(NamedTuple):
    """
    The number of rows that a learner holds and their checksum, for an audit, in all and by session.

    The checksum is 0 unless rows are hashed (`hive.protocol.audit`).
    """

    rows: int
    checksum: int
    sessions: dict[int, tuple[int, int]]

    @classmethod
    def of(cls, hashes: npt.NDArray[np.uint64], owners: npt.NDArray[np.uint32]) -> HeldRows:
        """Return the audit of rows, given the hash and the session of each: [n] both."""
        sessions = {
            int(owner): (int((owners == owner).sum()), checksum(hashes[owners == owner]))
            for owner in np.unique(owners)
        }
        return cls(len(hashes), checksum(hashes), sessions)


class RowStore(Protocol):
    """A store of the rows that an algorithm learns from."""

    @property
    def rows(self) -> int:
        """Number of rows added, including rows that are no longer held."""

    def add(self, session: int, kind: int, columns: RowColumns) -> Added:
        """
        Add rows of one session, in push order. Copies the columns, which are views of a file.

        Args:
            session: The index of the session in the run.
            kind: A `RowKind`, for example a training row or a demonstration.
            columns: The rows.

        Returns:
            The discounted returns of the rows so far, and the episodes that ended.

        Raises:
            MemoryError: There is no room for the rows; none is added.

        """

    def cut(self, session: int) -> None:
        """End all chains of consecutive rows in a session that has lost rows."""

    def audit(self) -> HeldRows:
        """Return counts and checksums of the rows held."""


class UpdatePace(Protocol):
    """Keeps the number of updates in proportion to the number of rows of a run."""

    update_seconds: float
    """Seconds of one update, a moving average; 0 before the first."""

    @property
    def holds(self) -> bool:
        """True while hosts must not send rows, however many rows are admitted."""

    def begin(self, rows: int, updates: int) -> None:
        """Start from the numbers of rows and updates that a new learner process finds."""

    def admitted(self, updates: int) -> int:
        """Return the number of rows that hosts may have sent in all after `updates` updates."""

    def due(self, rows: int, updates: int) -> int:
        """Return how many updates may be made now, given the numbers of rows and updates so far."""

    def turn(self, due: int) -> int:
        """Return the number of due updates to make before messages are read again."""

    def record(self, updates: int, seconds: float) -> None:
        """Record that `updates` updates took `seconds`."""


class Algorithm(Protocol):
    """
    Learns from the rows in its buffer.

    One thread calls all methods. `is_on_policy`: rows are learned from only while the policy that
    acted is the newest one, so a policy is published after every turn of updates, and rows of
    demonstrations are not taken.
    """

    is_on_policy: bool

    @property
    def buffer(self) -> RowStore:
        """The store of rows, which the learner fills as it reads them."""

    @property
    def pace(self) -> UpdatePace:
        """The pace of the algorithm's updates."""

    @property
    def is_ready(self) -> bool:
        """True if there are enough rows for an update."""

    @property
    def n_opts(self) -> int:
        """Updates so far, including updates before a restart."""

    @property
    def device(self) -> str:
        """The device on which the algorithm computes: "cpu", or a name of its library."""

    def prepare(self) -> None:
        """Begin slow preparations for the first update, such as compilation, without waiting."""

    def train(self, updates: int) -> dict[str, float]:
        """
        Make `updates` updates; return their mean losses, by the tags of stable-baselines3.

        Raises Diverged if a result is not finite; the state is then unchanged.
        """

    def policy(self) -> PolicyModel:
        """
        Return the present policy as ONNX, with the scaling that the normalizer uses now.

        Its inputs and outputs are described in docs/policies.md. Raises Diverged and ExportWrong.
        """

    def published(self, version: int) -> None:
        """Note that the policy returned last acts as version `version` from now on."""

    def name_metrics(self, names: Sequence[str]) -> None:
        """Set the names of the guest's metrics, in the order of their numbers in rows."""

    def metrics(self) -> Mapping[str, float]:
        """Return values to record now, by tag, in addition to the losses of `train`."""

    def state(self) -> State:
        """Return a copy of the state that `restore` needs; rows are not in it, but in the log."""

    def restore(self, state: State) -> None:
        """Continue from a state. Raises CheckpointDamaged if it does not fit the run."""


MakeAlgorithm = Callable[[Settings, Normalizer], Algorithm]
"""
Makes the algorithm of a run. What an entry point of the group `arkml.learners` names; the name of
the entry point is the value of the setting `algorithm`. Raises InvalidSettings for settings that it
cannot follow.
"""
