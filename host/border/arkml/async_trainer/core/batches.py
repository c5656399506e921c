"""Transitions side by side: items that step processors make, and batches that buffers draw."""

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
    An item, or a batch, of as many samples as its length.

    Items of other classes count as one sample each.
    """

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""


@dataclass(slots=True)
class GenericTransitionBatch(TransitionBatch, Generic[ObsBatch, ActBatch]):
    """
    Transitions of one step, n of them.

    `reward` is float32, [n]; `is_terminated` and `is_truncated` are int8, [n]. A batch that a
    buffer has drawn has the slots of its samples in `ix_sample`, int64, [n], and where sampling is
    prioritized their importance in `weight`, float32, [n].
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
        """Return the fields: obs, act, next_obs, reward, the two flags, ix_sample and weight."""
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
    """Return the number of samples of an item."""
    return len(item) if isinstance(item, TransitionBatch) else 1


def slots_from(i: int, count: int, capacity: int) -> slice | Indices:
    """Return `count` slots of a ring from `i` on; slots are a slice where they do not wrap."""
    if i + count <= capacity:
        return slice(i, i + count)
    return (i + np.arange(count)) % capacity


class ArrayBatch:
    """
    Observations or actions that are numpy arrays: `array`, [n, ...].

    One made by `new` takes shape and dtype of the first rows that are pushed.
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
        Write rows to the slots from `i` on, which wrap around.

        Raises UsageError if they have another shape than those before.
        """
        rows = data.array
        if not len(self.array):
            self.array = np.zeros((self._capacity, *rows.shape[1:]), rows.dtype)
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
        """Return the batch of the one or the several that this is."""


def batch_of(data: Any) -> Any:
    """
    Return an observation or action as a batch: of an array an ArrayBatch, else `into_batch()`.

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
