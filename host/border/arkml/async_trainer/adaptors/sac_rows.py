"""Rows for soft actor-critic: actors turn steps into rows, and rows fill the replay buffer."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.arrays import real_array
from arkml.async_trainer.core.buffers import ReplayBufferBase, StepProcessor
from arkml.async_trainer.core.transition_batches import TransitionBatch
from arkml.base.short_reprs import cut_repr
from arkml.batches import Floats
from arkml.errors import UsageError
from arkml.hive.protocol.rows import META, RowColumns, RowKind
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Added
from arkml.learning.replay_buffer import BatchBlock, ReplayBuffer, empty_block

Rows = npt.NDArray[Any]
"""Rows of agents as one structured array of `row_type`, which pickle handles in one piece."""

_INITIAL, _RUNNING = int(EpisodeState.INITIAL), int(EpisodeState.RUNNING)
_TERMINAL, _INTERRUPTED = int(EpisodeState.TERMINAL), int(EpisodeState.INTERRUPTED)
_SESSION = 0
_NO_META = np.zeros(0, META)


def row_type(features: int, actions: int) -> np.dtype[Any]:
    """
    Return the dtype of a row; its fields have the meaning of the columns of `RowColumns`.

    `reward` is for the transition into the row. `action` was chosen at the row, and is zero where
    the episode ended.
    """
    return np.dtype([
        ("agent", "<u8"), ("step", "<u4"), ("state", "u1"), ("reward", "<f4"),
        ("features", "<f4", (features,)), ("action", "<f4", (actions,)),
    ])  # fmt: skip


class _Agents(NamedTuple):
    """The agents of an environment at their present rows, as columns."""

    agent: npt.NDArray[np.uint64]
    step: npt.NDArray[np.uint32]
    state: npt.NDArray[np.uint8]
    reward: Floats
    features: Floats

    def chosen(self, marks: npt.NDArray[np.bool_]) -> _Agents:
        """Return the agents with a true mark; `marks` is bool, [n]."""
        return _Agents(
            self.agent[marks],
            self.step[marks],
            self.state[marks],
            self.reward[marks],
            self.features[marks],
        )


@dataclass(slots=True)
class SacItem(TransitionBatch):
    """
    The rows of one step: one for each environment, and one more for each episode that ended.

    `records` has the dtype `row_type`. `len` returns the number of environments.
    """

    records: Rows
    samples: int

    def __len__(self) -> int:
        return self.samples


class SacStepProcessor(StepProcessor):
    """
    Turns steps into rows for a `SacReplayBuffer`.

    Observations and actions are float32, [n, width]. A transition is complete with the next item,
    or with its own item if its episode ends.
    """

    @classmethod
    def build(cls, config: SacStepProcessorConfig) -> Self:
        """Build a processor for one actor."""
        del config
        return cls()

    def __init__(self) -> None:
        self._next = secrets.randbits(63)  # agent ids must differ between actors
        self._now: _Agents | None = None
        self._init_obs: Any = None
        self._type: np.dtype[Any] | None = None

    def reset(self, init_obs: Any) -> None:
        """
        Begin with the first observations, [n, features].

        Does nothing after a step that has these as its `init_obs`, since its other environments are
        in the middle of their episodes. Raises UsageError for other shapes and non-finite numbers.
        """
        if self._now is not None and init_obs is self._init_obs:
            return
        features = _numbers("observations", init_obs)
        count = len(features)
        self._now = _Agents(
            self._new_agents(count),
            np.zeros(count, np.uint32),
            np.full(count, _INITIAL, np.uint8),
            np.zeros(count, np.float32),
            features,
        )

    def process(self, step: Any) -> SacItem:
        """
        Return the rows of a step.

        Raises UsageError before a reset, and for other shapes and non-finite numbers.
        """
        now = self._now
        if now is None:
            raise UsageError("the step processor was not reset: it needs the first observation")
        actions, features = _numbers("actions", step.act), _numbers("observations", step.obs)
        count = len(now.agent)
        if not len(actions) == len(features) == len(step.reward) == count:
            raise UsageError(
                f"{len(actions)} actions, {len(features)} observations and {len(step.reward)}"
                f" rewards of a step in {count} environments"
            )
        rows = self._rows(now, actions)
        terminated = step.is_terminated != 0
        ended = terminated | (step.is_truncated != 0)
        state = np.full(count, _RUNNING, np.uint8)
        after = _Agents(now.agent, now.step + np.uint32(1), state, step.reward, features)
        is_changed = step.continues is not None
        if not (is_changed or ended.any()):
            self._now = after
            return SacItem(rows, count)
        state[ended] = np.where(terminated[ended], _TERMINAL, _INTERRUPTED)
        last = self._rows(after.chosen(ended), np.zeros((int(ended.sum()), actions.shape[1])))
        continues = step.continues if is_changed else np.where(ended, -1, np.arange(count))
        self._init_obs, self._now = step.init_obs, None
        if step.init_obs is not None:
            self._now = self._following(after, continues, _numbers("init_obs", step.init_obs))
        return SacItem(np.concatenate([rows, last]), count)

    def _following(self, after: _Agents, continues: npt.NDArray[np.intp], first: Floats) -> _Agents:
        """Return the agents at their rows after a step; see `Step` for `continues`."""
        begun = continues < 0
        agents = after.agent[continues]
        agents[begun] = self._new_agents(int(begun.sum()))
        return _Agents(
            agents,
            np.where(begun, 0, after.step[continues]).astype(np.uint32),
            np.where(begun, _INITIAL, _RUNNING).astype(np.uint8),
            np.where(begun, np.float32(0), after.reward[continues]),
            first,
        )

    def _rows(self, agents: _Agents, actions: npt.NDArray[Any]) -> Rows:
        widths = agents.features.shape[1], actions.shape[1]
        if self._type is None:
            self._type = row_type(*widths)
        expected = self._type["features"].shape + self._type["action"].shape
        if widths != expected:
            raise UsageError(
                f"{widths[0]} features and {widths[1]} actions: the actor began with {expected[0]}"
                f" and {expected[1]}"
            )
        rows = np.empty(len(actions), self._type)
        rows["agent"], rows["step"], rows["state"] = agents.agent, agents.step, agents.state
        rows["reward"], rows["features"], rows["action"] = agents.reward, agents.features, actions
        return rows

    def _new_agents(self, count: int) -> npt.NDArray[np.uint64]:
        first, self._next = self._next, self._next + count
        return np.arange(first, first + count, dtype=np.uint64)


@dataclass(frozen=True)
class SacStepProcessorConfig:
    """Configuration of a `SacStepProcessor`; it has no fields."""

    builds: ClassVar[type[SacStepProcessor]] = SacStepProcessor


class SacReplayBuffer(ReplayBufferBase):
    """
    Replay buffer of the hive's SAC learner, filled with items of `SacStepProcessor`.

    Items are collected and added in groups, because adding one row costs as much as adding a
    hundred.
    """

    @classmethod
    def build(cls, config: SacReplayBufferConfig) -> Self:
        """Build an empty buffer. Raises MemoryError if there is not enough address space."""
        return cls(config.settings)

    def __init__(self, settings: Settings) -> None:
        self.capacity: int = settings.memory_max_size
        """Maximum number of rows."""
        self._settings = settings
        self._type = row_type(settings.features, settings.actions)
        self._rows = ReplayBuffer(
            settings.memory_max_size,
            settings.features,
            settings.actions,
            gamma=settings.gamma,
            masking=settings.use_terminal_masking,
        )
        self._random = np.random.default_rng(settings.seed)
        self._pending: list[Rows] = []
        self._pending_rows = 0
        self._added: list[tuple[Floats, Added]] = []

    def push(self, item: Any) -> None:
        """Add the rows of an item. Raises UsageError if it is not a SacItem."""
        records = item.records if isinstance(item, SacItem) else None
        if records is None or records.dtype != self._type:
            shown = type(item).__name__ if records is None else f"rows {records.dtype}"
            raise UsageError(
                f"an item of {shown}: the buffer takes items of SacStepProcessor with"
                f" {self._settings.features} features and {self._settings.actions} actions"
            )
        self._pending.append(records)
        self._pending_rows += len(records)

    def __len__(self) -> int:
        """Return the number of rows, including the last rows of episodes."""
        return min(self._rows.held + self._pending_rows, self.capacity)

    def batch(self, size: int) -> BatchBlock:
        """
        Return a batch of transitions; each array is [size, …].

        Raises UsageError if there are no transitions yet.
        """
        settings = self._settings
        block = empty_block(1, size, settings.features, settings.actions)
        rows = self.rows
        if not rows.transitions:
            raise UsageError("no transition in the replay buffer: set a longer warm-up")
        rows.gather(rows.draw(self._random, 1, size), settings.rollout_length, block)
        return BatchBlock(*(column[0] for column in block))

    @property
    def rows(self) -> ReplayBuffer:
        """The learner's buffer, with all pushed items."""
        if self._pending:
            records = np.concatenate(self._pending)
            columns = RowColumns(
                records["agent"],
                records["step"],
                np.zeros(len(records), np.uint32),
                records["reward"],
                records["state"],
                records["features"],
                np.zeros((len(records), 0), np.uint8),
                records["action"],
                _NO_META,
            )
            added = self._rows.add(_SESSION, RowKind.TRAINING, columns)
            self._pending, self._pending_rows = [], 0
            self._added.append((columns.features, added))
        return self._rows

    def take_added(self) -> list[tuple[Floats, Added]]:
        """Return features and discounted rewards of rows added since the last call."""
        added, self._added = self._added, []
        return added


@dataclass(frozen=True)
class SacReplayBufferConfig:
    """Configuration of a `SacReplayBuffer`; it uses the row and memory settings."""

    settings: Settings
    builds: ClassVar[type[SacReplayBuffer]] = SacReplayBuffer


def _numbers(name: str, values: Any) -> Floats:
    """Return float32, [n, width]. Raises UsageError for other shapes and non-finite numbers."""
    try:
        array = real_array(values).astype(np.float32, copy=False)
    except (TypeError, ValueError):
        raise UsageError(f"{name} are {cut_repr(values)}: SAC takes numbers") from None
    if array.ndim != 2:
        raise UsageError(
            f"{name} have the shape {array.shape}: SAC takes [environments, width]; flatten them"
        )
    if not np.isfinite(array).all():
        raise UsageError(f"{name} are not finite: {array[~np.isfinite(array)][0]}")
    return array
