"""Fakes: policies that answer with constants and record their batches, a queue in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState, SnapshotFormat
from arkml.batches import ROW, Batch, Floats, Metadata, MetadataLog
from arkml.errors import InvalidArguments, Unavailable
from arkml.policies.library import PolicyLibrary
from arkml.policies.model_cache import ModelCache
from arkml.policies.network import Network


@dataclass(frozen=True, slots=True)
class RecordedBatch:
    """A copy of the rows of one submit: ids, states, rewards [n], features [n, num_features]."""

    ids: list[int]
    states: list[EpisodeState]
    rewards: list[float]
    features: Floats

    @classmethod
    def of(cls, batch: Batch) -> RecordedBatch:
        rows = batch.rows
        states = [EpisodeState(number) for number in rows["state"].tolist()]
        return cls(rows["id"].tolist(), states, rows["reward"].tolist(), batch.features.copy())


class ConstantPolicy:
    """
    A policy that gives every row the same actions and value.

    `actions` is one number for all actions, or one for each. `batches` records the submits,
    `forgotten` the keys of the sessions that were closed.
    """

    def __init__(
        self,
        num_features: int,
        num_actions: int,
        *,
        actions: float | Sequence[float] = 0.0,
        value: float = 0.0,
        batches: list[RecordedBatch] | None = None,
    ) -> None:
        self.num_features = num_features
        self.num_actions = num_actions
        self.batches: list[RecordedBatch] = [] if batches is None else batches
        self.forgotten: list[int] = []
        self._value = value
        wanted = np.asarray(actions, np.float32)
        if wanted.shape not in ((), (num_actions,)):
            raise InvalidArguments(f"{wanted.size} actions for a session of {num_actions}")
        self._actions: Floats = np.broadcast_to(wanted, (num_actions,))

    def act(self, batch: Batch) -> None:
        self.batches.append(RecordedBatch.of(batch))
        batch.actions[:] = self._actions
        batch.values[:] = self._value

    def forget(self, key: int) -> None:
        self.forgotten.append(key)


class RecordingPolicies(PolicyLibrary):
    """
    Answers a guest with constants, whatever model it loads.

    Give it to `ThreadedHost.load`. `batches` holds the submits of all sessions in order,
    `snapshots` the bytes of the models that the guest loaded. `num_features` and `num_actions` are
    for guests that leave it to the model to say how many there are.
    """

    def __init__(
        self,
        *,
        actions: float | Sequence[float] = 0.0,
        value: float = 0.0,
        num_features: int | None = None,
        num_actions: int | None = None,
    ) -> None:
        super().__init__(ModelCache())
        self.batches: list[RecordedBatch] = []
        self.snapshots: list[bytes] = []
        self._wanted = actions
        self._value = value
        self._shape = num_features, num_actions

    def load(
        self,
        snapshot: bytes,
        snapshot_format: SnapshotFormat,  # noqa: ARG002  a library's
        num_features: int | None,
        num_actions: int | None,
    ) -> ConstantPolicy:
        """Return a policy of the shape that the guest asks for."""
        self.snapshots.append(bytes(snapshot))
        features = self._shape[0] if num_features is None else num_features
        actions = self._shape[1] if num_actions is None else num_actions
        if features is None or actions is None:
            raise InvalidArguments("the guest does not say how many features and actions there are")
        return ConstantPolicy(
            features, actions, actions=self._wanted, value=self._value, batches=self.batches
        )

    def load_network(
        self,
        snapshot: bytes,  # noqa: ARG002  a library's
        snapshot_format: SnapshotFormat,  # noqa: ARG002  a library's
        *,
        key: int = 0,  # noqa: ARG002  a library's
    ) -> Network:
        """Raise Unavailable: brains of ark-ml-inference-v0 need a model."""
        raise Unavailable("RecordingPolicies has no networks for ark-ml-inference-v0")


class MemoryQueue:
    """The queue of a session in plain memory, into which a test pushes rows."""

    def __init__(self, num_features: int, num_actions: int, *, key: int = 0) -> None:
        self.num_features = num_features
        self.num_actions = num_actions
        self.is_open: bool = True
        self._key: npt.NDArray[np.uint64] = np.array(key, np.uint64)
        self._rows: list[tuple[int, int, float, float, int, int, int]] = []
        self._features: list[Floats] = []
        self._given: list[Floats] = []
        self._metadata: list[Metadata] = []

    def push(
        self,
        agent: int,
        features: Sequence[float],
        *,
        state: EpisodeState = EpisodeState.RUNNING,
        reward: float = 0.0,
        actions: Sequence[float] = (),
        metadata: Sequence[tuple[str, float]] = (),
    ) -> None:
        """Add a row; `actions` are those of an augmented or demonstrated one."""
        if len(features) != self.num_features:
            raise InvalidArguments(f"{len(features)} features, {self.num_features} are wanted")
        if len(actions) not in (0, self.num_actions):
            raise InvalidArguments(f"{len(actions)} actions, {self.num_actions} are wanted")
        row = len(self._rows)
        self._rows.append((agent, state, reward, 0.0, len(actions), len(metadata), 0))
        self._features.append(np.array(features, np.float32))
        given = np.zeros(self.num_actions, np.float32)
        given[: len(actions)] = actions
        self._given.append(given)
        self._metadata += [Metadata(row, name, value) for name, value in metadata]

    def batch(self) -> Batch:
        count = len(self._rows)
        return Batch(
            np.array(self._rows, ROW),
            np.array(self._features, np.float32).reshape(count, self.num_features),
            np.zeros((count, self.num_actions), np.float32),
            np.zeros(count, np.float32),
            self._key,
            np.array(self._given, np.float32).reshape(count, self.num_actions),
        )

    def metadata(self) -> MetadataLog:
        return list(self._metadata)

    def clear(self) -> None:
        self._rows.clear()
        self._features.clear()
        self._given.clear()
        self._metadata.clear()

    def close(self) -> None:
        self.is_open = False
