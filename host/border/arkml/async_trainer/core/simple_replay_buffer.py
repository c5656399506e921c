"""The replay buffer for transitions, with uniform or prioritized sampling."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from arkml.async_trainer.core.buffers import ReplayBufferBase
from arkml.async_trainer.core.config_files import CONFIG, YamlConfig, check_whole
from arkml.async_trainer.core.priorities import PerConfig, Priorities
from arkml.async_trainer.core.transition_batches import (
    ActBatch,
    GenericTransitionBatch,
    Indices,
    ObsBatch,
    slots_from,
)
from arkml.errors import UsageError

_MOST_SAMPLES = 1 << 32  # as of a hive's replay buffer


@dataclass(frozen=True)
class SimpleReplayBufferConfig(YamlConfig):
    """
    Configuration of SimpleReplayBuffer.

    Args:
        capacity: Maximum number of samples.
        seed: Seed of the sampling.
        per_config: Configuration of prioritized sampling; None for uniform sampling.

    Raises:
        UsageError: A value is invalid.

    """

    capacity: int = 10_000
    seed: int = 42
    per_config: PerConfig | None = field(default=None, metadata={CONFIG: PerConfig})

    def __post_init__(self) -> None:
        check_whole("capacity", self.capacity, 1, _MOST_SAMPLES)
        check_whole("seed", self.seed)


class SimpleReplayBuffer(ReplayBufferBase, Generic[ObsBatch, ActBatch]):
    """
    A ring buffer with the newest `capacity` transitions, sampled with replacement.

    Memory is allocated with the first item. Batches are copies.
    """

    config_class = SimpleReplayBufferConfig

    def __init__(self, config: SimpleReplayBufferConfig) -> None:
        capacity = config.capacity
        self.capacity = capacity
        self._i = 0
        self._size = 0
        self._obs: Any = None
        self._act: Any = None
        self._next_obs: Any = None
        per = config.per_config
        try:
            self._reward = np.zeros(capacity, np.float32)
            self._is_terminated = np.zeros(capacity, np.int8)
            self._is_truncated = np.zeros(capacity, np.int8)
            self._priorities = None if per is None else Priorities(capacity, per)
        except MemoryError:
            raise UsageError(
                f"capacity is {capacity}: there is no memory for so many samples"
            ) from None
        self._random = np.random.default_rng(config.seed)

    @classmethod
    def build(cls, config: SimpleReplayBufferConfig) -> SimpleReplayBuffer[ObsBatch, ActBatch]:
        """Build an empty buffer."""
        return cls(config)

    def __len__(self) -> int:
        return self._size

    def push(self, item: GenericTransitionBatch[ObsBatch, ActBatch]) -> None:
        """
        Add the samples of an item, with the largest priority.

        Raises UsageError if they exceed the capacity, or their shapes differ from earlier ones.
        """
        count = len(item)
        if count > self.capacity:
            raise UsageError(
                f"an item has {count} samples, more than the capacity {self.capacity} of the buffer"
            )
        if self._obs is None:
            self._obs = type(item.obs).new(self.capacity)
            self._act = type(item.act).new(self.capacity)
            self._next_obs = type(item.next_obs).new(self.capacity)
        i = self._i
        self._obs.push(i, item.obs)
        self._act.push(i, item.act)
        self._next_obs.push(i, item.next_obs)
        slots = slots_from(i, count, self.capacity)
        self._reward[slots] = item.reward
        self._is_terminated[slots] = item.is_terminated
        self._is_truncated[slots] = item.is_truncated
        if self._priorities is not None:
            self._priorities.add(i, count)
        self._i = (i + count) % self.capacity
        self._size = min(self._size + count, self.capacity)

    def batch(self, size: int) -> GenericTransitionBatch[ObsBatch, ActBatch]:
        """
        Return `size` random samples, drawn with replacement.

        Raises UsageError if the buffer is empty, or its capacity is below `size`.
        """
        if not 0 < size <= self.capacity:
            raise UsageError(
                f"a batch of {size} samples was asked for, a buffer of the capacity"
                f" {self.capacity} has batches of 1 to {self.capacity}"
            )
        if not self._size:
            raise UsageError(f"the buffer has no samples yet, and a batch of {size} was asked for")
        weight = None
        if self._priorities is None:
            ixs: Indices = self._random.integers(0, self._size, size)
        else:
            ixs, weight = self._priorities.draw(self._random, size)
        return GenericTransitionBatch(
            self._obs.sample(ixs),
            self._act.sample(ixs),
            self._next_obs.sample(ixs),
            self._reward[ixs],
            self._is_terminated[ixs],
            self._is_truncated[ixs],
            ixs,
            weight,
        )

    def update_priority(
        self, ixs: npt.NDArray[np.int64] | None, td_errs: npt.NDArray[np.float32] | None
    ) -> None:
        """
        Set the priorities of samples to their absolute TD errors, if the buffer has priorities.

        Raises UsageError if an argument is missing or an error is not finite.
        """
        if self._priorities is None:
            return
        if ixs is None or td_errs is None:
            raise UsageError("a buffer with priorities needs ixs and td_errs, not None")
        self._priorities.update(ixs, td_errs)


SimpleReplayBufferConfig.builds = SimpleReplayBuffer
