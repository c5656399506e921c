"""
Fakes for tests: policies and games that answer constants, and a queue and a sink in memory.

Each fake records its use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState, SnapshotFormat
from arkml.base.sealed import Sealed
from arkml.base.short_reprs import short_repr
from arkml.base.terminal import listed
from arkml.batches import ROW, Batch, Floats, Metadata, MetadataLog
from arkml.errors import InvalidArguments, Unavailable, UsageError
from arkml.host import Source, read_source
from arkml.limits import require_whole
from arkml.policies.demands import BranchesOf, PartsOf
from arkml.policies.library import PolicyLibrary, no_branches, no_parts
from arkml.policies.model_cache import ModelCache
from arkml.policies.network import Network
from arkml.runtime.compiled_module import to_binary
from arkml.runtime.module.description import describe
from arkml.runtime.module.imports import may_be_of_a_game
from arkml.runtime.module.parsing import parse
from arkml.runtime.module.wasm_types import FunctionType
from arkml.sessions.session import Origin, Ready

_MOST_U32 = (1 << 32) - 1
_MOST_U64 = (1 << 64) - 1


def _whole(name: str, value: SupportsIndex, most: int = _MOST_U32) -> int:
    return require_whole(name, value, most, least=0, error=InvalidArguments)


@dataclass(frozen=True, slots=True)
class RecordedBatch:
    """
    A copy of one batch that a fake has recorded: the rows of a submit.

    Attributes:
        rows: Records, [n], with the fields of `Batch.rows`.
        features: float32, [n, num_features].
        pushed_actions: float32, [n, num_actions], actions that came with the rows, or None.
        metadata: Index of the row, name and value of each item; empty if a policy recorded the
            batch.

    """

    __repr__ = short_repr

    rows: npt.NDArray[Any]
    features: Floats
    pushed_actions: Floats | None
    metadata: list[tuple[int, str, float]]

    @classmethod
    def of(cls, batch: Batch, metadata: Sequence[Metadata] = ()) -> RecordedBatch:
        """Return a copy of a batch and of the metadata that came with it."""
        pushed = None if batch.pushed_actions is None else batch.pushed_actions.copy()
        items = [(item.row, item.name, item.value) for item in metadata]
        return cls(batch.rows.copy(), batch.features.copy(), pushed, items)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ids(self) -> list[int]:
        """The agent's id of each row."""
        ids: list[int] = self.rows["id"].tolist()
        return ids

    @property
    def states(self) -> list[EpisodeState]:
        """The episode state of each row."""
        return [EpisodeState(number) for number in self.rows["state"].tolist()]

    @property
    def rewards(self) -> list[float]:
        """The reward of each row."""
        rewards: list[float] = self.rows["reward"].tolist()
        return rewards


class ConstantPolicy(Sealed):
    """
    A policy that answers every row with the same actions and value.

    `batches` holds the submits in order, `forgotten` the keys of closed sessions. While `failure`
    is an exception, `act` raises it after it has recorded the submit.

    Args:
        num_features: Number of features of an observation.
        num_actions: Number of actions of an agent.
        actions: One number for all actions, or one for each.
        value: The value of every row.
        batches: List that gets the submits; None makes a new list.

    Raises:
        InvalidArguments: There are more or fewer `actions` than `num_actions`, or a number is no
            whole number of 32 bits, unsigned.

    Example:
        policy = ConstantPolicy(2, 1, actions=0.5)
        with arkml.Host(policy=policy) as host:
            host.load("walker.wasm").update()
        print(policy.batches[0].features)

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
        self.num_features: int = _whole("num_features", num_features)
        self.num_actions: int = _whole("num_actions", num_actions)
        self.batches: list[RecordedBatch] = [] if batches is None else batches
        self.forgotten: list[int] = []
        self.failure: BaseException | None = None
        self._value = value
        constants = np.asarray(actions, np.float32)
        if constants.shape not in ((), (self.num_actions,)):
            raise InvalidArguments(f"{constants.size} actions for a session of {self.num_actions}")
        self._actions: Floats = np.broadcast_to(constants, (self.num_actions,))

    def act(self, batch: Batch) -> None:
        """Record a batch and fill its actions and values. Raises `failure`."""
        self.batches.append(RecordedBatch.of(batch))
        if self.failure is not None:
            raise self.failure
        batch.actions[:] = self._actions
        batch.values[:] = self._value

    def forget(self, key: int) -> None:
        """Record the key of a session that was closed."""
        self.forgotten.append(key)


Answer: TypeAlias = float | tuple[float, ...] | None


class FakeGame(dict[tuple[str, str], Callable[..., Answer]]):
    """
    The functions of a game that a module imports, for `Host(imports=...)`.

    Each function returns a constant, zero by default, and `calls` holds all calls in order: the
    module and the name of the import, and the numbers that the guest passed.

    Args:
        source: The path or the bytes of the module.
        answers: Results by module and name: a number, or a tuple of several. They may be changed
            later, by the attribute of that name.

    Raises:
        ModuleError: The module cannot be read.
        UsageError: An answer is for a function that the module does not import.

    Example:
        game = FakeGame("npc.wasm", {("env", "raycast"): 4.0})
        with arkml.Host(imports=game) as host:
            host.load("npc.wasm").update()
        assert game.calls[0] == ("env", "raycast", (1.0, 2.0))

    """

    def __init__(
        self, source: Source, answers: Mapping[tuple[str, str], Answer] | None = None
    ) -> None:
        super().__init__()
        self.calls: list[tuple[str, str, tuple[float, ...]]] = []
        self.answers: dict[tuple[str, str], Answer] = {}
        data, name = read_source(source)
        for entry in filter(may_be_of_a_game, describe(parse(to_binary(data, name))).imports):
            key = (entry.module, entry.name)
            assert isinstance(entry.type, FunctionType)
            zeros = (0,) * len(entry.type.results)
            self.answers[key] = zeros[0] if len(zeros) == 1 else zeros or None
            self[key] = partial(self._call, key)
        for key, answer in (answers or {}).items():
            if key not in self:
                known = listed(".".join(each) for each in self)
                raise UsageError(f"{name} imports no function {key!r} of a game, but {known}")
            self.answers[key] = answer

    def _call(self, key: tuple[str, str], *numbers: float) -> Answer:
        self.calls.append((*key, numbers))
        return self.answers[key]


class RecordingPolicies(Sealed, PolicyLibrary):
    """
    A policy library that answers a guest with constants, whichever model the guest loads.

    Pass it to `ThreadedHost.load`. While `failure` is an exception, loading raises it.

    Args:
        actions: One number for all actions, or one for each.
        value: The value of every row.
        num_features: Number of features, for guests that leave it to the model.
        num_actions: Number of actions, for guests that leave it to the model.
        networks: Networks for models of `ark-ml-inference-v0`, by the bytes of the model.

    Attributes:
        batches: The submits of all sessions, in order.
        snapshots: The bytes of the models that the guest loaded.
        policies: The policies that the guest got for these models.
        network_keys: The key of each network that was loaded.

    Example:
        policies = RecordingPolicies(actions=[0.5, -1.0], num_features=4, num_actions=2)
        with host.load("walker.wasm", policies=policies) as guest:
            guest.update()
        print(len(policies.snapshots), policies.batches[0].features)

    """

    def __init__(
        self,
        *,
        actions: float | Sequence[float] = 0.0,
        value: float = 0.0,
        num_features: int | None = None,
        num_actions: int | None = None,
        networks: Mapping[bytes, Network] | None = None,
    ) -> None:
        super().__init__(ModelCache())
        self.batches: list[RecordedBatch] = []
        self.snapshots: list[bytes] = []
        self.policies: list[ConstantPolicy] = []
        self.networks: dict[bytes, Network] = dict(networks or {})
        self.network_keys: list[int] = []
        self.failure: Exception | None = None
        self._constants = actions
        self._value = value
        self._shape = (
            None if num_features is None else _whole("num_features", num_features),
            None if num_actions is None else _whole("num_actions", num_actions),
        )

    def load(
        self,
        snapshot: bytes,
        snapshot_format: SnapshotFormat,  # noqa: ARG002  a library's
        num_features: int | None,
        num_actions: int | None,
        branches_of: BranchesOf = no_branches,  # noqa: ARG002  constants have no masks
        parts_of: PartsOf = no_parts,  # noqa: ARG002  constants have no inputs
    ) -> ConstantPolicy:
        """Return a new policy with the guest's number of features and actions. Raises `failure`."""
        self.snapshots.append(bytes(snapshot))
        if self.failure is not None:
            raise self.failure
        features = self._shape[0] if num_features is None else num_features
        actions = self._shape[1] if num_actions is None else num_actions
        if features is None or actions is None:
            raise InvalidArguments("the guest does not say how many features and actions there are")
        policy = ConstantPolicy(
            features, actions, actions=self._constants, value=self._value, batches=self.batches
        )
        self.policies.append(policy)
        return policy

    def load_network(
        self,
        snapshot: bytes,
        snapshot_format: SnapshotFormat,  # noqa: ARG002  a library's
        *,
        key: int = 0,
    ) -> Network:
        """
        Return the network given for a model. Raises `failure`, and Unavailable if none was given.
        """
        self.network_keys.append(key)
        if self.failure is not None:
            raise self.failure
        network = self.networks.get(bytes(snapshot))
        if network is None:
            raise Unavailable(
                f"RecordingPolicies has no networks for the model {bytes(snapshot[:16])!r}: give"
                " one in `networks`"
            )
        return network


class RecordingSink(Sealed):
    """
    A `TransitionSink` that records all its calls: the run of a training session.

    The sink never makes a guest wait. While `failure` is an exception, `accept` raises it and keeps
    no row.

    Attributes:
        accepted: Rows whose actions the guest pushed, with their origin.
        noted: Metrics of answered batches.
        left: The argument `stop` of each `leave`.

    """

    def __init__(self, *, failure: Exception | None = None) -> None:
        self.accepted: list[tuple[RecordedBatch, Origin]] = []
        self.noted: list[Metadata] = []
        self.left: list[bool] = []
        self.failure: Exception | None = failure

    def accept(self, batch: Batch, metadata: MetadataLog, origin: Origin) -> None:
        """Record rows whose actions the guest pushed. Raises `failure`."""
        if self.failure is not None:
            raise self.failure
        self.accepted.append((RecordedBatch.of(batch, metadata), origin))

    def note(self, batch: Batch, metadata: MetadataLog) -> None:  # noqa: ARG002  a sink's
        """Record the metrics of a batch that the policy has answered."""
        self.noted.extend(metadata)

    def held(self) -> Ready | None:
        """Return None, so that the guest never waits."""
        return None

    def leave(self, *, stop: bool) -> None:
        """Record the end of the session."""
        self.left.append(stop)


class MemoryQueue(Sealed):
    """
    The queue of a session in plain memory, to which a test pushes the rows of a guest.

    Its length is the number of rows since the last `clear`.

    Args:
        num_features: Number of features of a row.
        num_actions: Number of actions of a row.
        key: Key of the session.

    Raises:
        InvalidArguments: A number of features or actions is no whole number of 32 bits,
            unsigned, or the key none of 64 bits.

    """

    def __init__(self, num_features: int, num_actions: int, *, key: int = 0) -> None:
        self.num_features: int = _whole("num_features", num_features)
        self.num_actions: int = _whole("num_actions", num_actions)
        self.is_open: bool = True
        self._key: npt.NDArray[np.uint64] = np.array(_whole("key", key, _MOST_U64), np.uint64)
        self._rows: list[tuple[int, int, float, float, int, int, int]] = []
        self._features: list[Floats] = []
        self._given: list[Floats] = []
        self._metadata: list[Metadata] = []
        self._batch: Batch | None = None

    def __len__(self) -> int:
        return len(self._rows)

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
        """
        Add a row.

        Args:
            agent: Id of the agent, 64 bits, unsigned.
            features: Numbers, [num_features].
            state: State of the episode.
            reward: Reward of the row.
            actions: Actions of an augmented or demonstrated row, [num_actions], else none.
            metadata: Name and value of each item.

        Raises:
            InvalidArguments: There are too many or too few features or actions, or the id is no
                whole number of 64 bits.

        Example:
            queue = MemoryQueue(2, 1)
            queue.push(7, [0.1, 0.2], reward=1.0, metadata=[("success", 1.0)])

        """
        number = _whole("agent", agent, _MOST_U64)
        if len(features) != self.num_features:
            raise InvalidArguments(f"expected {self.num_features} features, got {len(features)}")
        if len(actions) not in (0, self.num_actions):
            raise InvalidArguments(f"expected {self.num_actions} actions, got {len(actions)}")
        row = len(self._rows)
        self._rows.append((number, state, reward, 0.0, len(actions), len(metadata), 1))
        self._features.append(np.array(features, np.float32))
        given = np.zeros(self.num_actions, np.float32)
        given[: len(actions)] = actions
        self._given.append(given)
        self._metadata += [Metadata(row, name, value) for name, value in metadata]
        self._batch = None

    def batch(self) -> Batch:
        """
        Return the rows as a batch; the object is the same, with its actions, until rows change.
        """
        if self._batch is None:
            count = len(self._rows)
            self._batch = Batch(
                np.array(self._rows, ROW),
                np.array(self._features, np.float32).reshape(count, self.num_features),
                np.zeros((count, self.num_actions), np.float32),
                np.zeros(count, np.float32),
                self._key,
                np.array(self._given, np.float32).reshape(count, self.num_actions),
            )
        return self._batch

    def metadata(self) -> MetadataLog:
        """Return the metadata of all rows."""
        return MetadataLog.of(self._metadata)

    def mentions(self, text: bytes) -> bool:
        """Return whether the name of a metadata item contains a text."""
        return any(text in item.name.encode() for item in self._metadata)

    def end_submit(self) -> None:
        """Remove the rows of a submit that was answered."""
        self.clear()

    def clear(self) -> None:
        """Remove all rows and their metadata."""
        self._rows.clear()
        self._features.clear()
        self._given.clear()
        self._metadata.clear()
        self._batch = None

    def close(self) -> None:
        """Record that the session was closed."""
        self.is_open = False
