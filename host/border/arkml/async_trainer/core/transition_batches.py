"""Batches of transitions: items of step processors, and samples of buffers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from arkml.async_trainer.core.buffers import BatchBase
from arkml.base.short_reprs import short_repr
from arkml.errors import UsageError

Indices = npt.NDArray[np.int64]
ObsBatch = TypeVar("ObsBatch", bound=BatchBase)
ActBatch = TypeVar("ActBatch", bound=BatchBase)


class TransitionBatch(ABC):
    """
    An item or batch whose length is its number of samples.

    An item of any other class counts as one sample.
    """

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""


@dataclass(slots=True)
class GenericTransitionBatch(TransitionBatch, Generic[ObsBatch, ActBatch]):
    """
    n one-step transitions, as columns.

    Args:
        obs: Observations before the actions.
        act: Actions.
        next_obs: Observations after the actions.
        reward: float32, [n].
        is_terminated: int8, [n]: 1 where the episode ended in a terminal state.
        is_truncated: int8, [n]: 1 where the episode was cut off.
        ix_sample: int64, [n]: slots of the samples in the buffer that drew them, otherwise None.
        weight: float32, [n]: importance weights of prioritized sampling, otherwise None.

    """

    __repr__ = short_repr

    obs: ObsBatch
    act: ActBatch
    next_obs: ObsBatch
    reward: npt.NDArray[np.float32]
    is_terminated: npt.NDArray[np.int8]
    is_truncated: npt.NDArray[np.int8]
    ix_sample: Indices | None = None
    weight: npt.NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.reward)

    def unpack(self) -> tuple[Any, ...]:
        """Return the fields as a tuple, in the order of the arguments."""
        return (
            self.obs,
            self.act,
            self.next_obs,
            self.reward,
            self.is_terminated,
            self.is_truncated,
            self.ix_sample,
            self.weight,
        )


def samples_of(item: object) -> int:
    """Return the number of samples in an item: its length, or 1 if it is not a TransitionBatch."""
    return len(item) if isinstance(item, TransitionBatch) else 1


def slots_from(i: int, count: int, capacity: int) -> slice | Indices:
    """Return `count` slots of a ring from `i` on: a slice, or indices if they wrap around."""
    if i + count <= capacity:
        return slice(i, i + count)
    return (i + np.arange(count)) % capacity


class ArrayBatch:
    """
    Observations or actions as a numpy array, [n, ...].

    `new` creates an empty store, which takes its shape and dtype from the first rows.
    """

    __slots__ = ("_capacity", "array")

    def __init__(self, array: npt.NDArray[Any], capacity: int | None = None) -> None:
        self.array: npt.NDArray[Any] = array
        self._capacity = len(array) if capacity is None else capacity

    @classmethod
    def new(cls, capacity: int) -> Self:
        """Return an empty store of `capacity` slots."""
        return cls(np.zeros(0, np.float32), capacity)

    def __len__(self) -> int:
        return len(self.array)

    def push(self, i: int, data: Self) -> None:
        """
        Write rows to the slots from `i` on, wrapping around.

        Raises UsageError if their shape differs from earlier rows, or there is no memory.
        """
        rows = data.array
        if not len(self.array):
            try:
                self.array = np.zeros((self._capacity, *rows.shape[1:]), rows.dtype)
            except (MemoryError, ValueError):  # numpy counts 63 bits of bytes
                raise UsageError(
                    f"capacity is {self._capacity}: there is no memory for so many rows of"
                    f" {rows[:1].nbytes} bytes"
                ) from None
        if rows.shape[1:] != self.array.shape[1:]:
            raise UsageError(
                f"rows have the shape {rows.shape[1:]}, and those before {self.array.shape[1:]}"
            )
        self.array[slots_from(i, len(rows), self._capacity)] = rows

    def sample(self, ixs: Sequence[int] | Indices) -> Self:
        """Return a copy of the slots `ixs`."""
        return type(self)(self.array[np.asarray(ixs)])


@runtime_checkable
class IntoBatch(Protocol):
    """An observation or action that a replay buffer can hold."""

    def into_batch(self) -> BatchBase:
        """Return a batch of this observation or action, or of these n parallel ones."""


def batch_of(data: Any) -> Any:
    """
    Return an observation or action as a batch: an ArrayBatch of an array, else `into_batch()`.

    Raises UsageError if it is neither.
    """
    if isinstance(data, np.ndarray):
        return ArrayBatch(data)
    try:
        into_batch = data.into_batch
    except AttributeError:
        raise UsageError(
            f"a {type(data).__name__} is neither an array nor does it have the method into_batch()"
            " which returns it as a batch"
        ) from None
    return into_batch()
