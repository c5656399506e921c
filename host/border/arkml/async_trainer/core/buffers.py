"""Interfaces of replay buffers, their batches, and step processors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from arkml.async_trainer.core.configurable import Configurable
from arkml.base.sealed import Sealed


class ExperienceBufferBase(Sealed, ABC):
    """A store of items, such as transitions."""

    @abstractmethod
    def push(self, item: Any) -> None:
        """Add an item."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples; an item may have several."""


class ReplayBufferBase(ExperienceBufferBase, Configurable[Any]):
    """A store of samples that draws random batches of them."""

    @abstractmethod
    def batch(self, size: int) -> Any:
        """Return `size` random samples."""

    def update_priority(
        self, ixs: npt.NDArray[np.int64] | None, td_errs: npt.NDArray[np.float32] | None
    ) -> None:
        """Set the priorities of samples if the buffer has priorities."""


class BatchBase(Protocol):
    """Columns of observations or actions, indexed by slot."""

    @classmethod
    def new(cls, capacity: int) -> Self:
        """Return an empty store of `capacity` slots."""

    def push(self, i: int, data: Self) -> None:
        """Write `data` to the slots from `i` on, wrapping around."""

    def sample(self, ixs: Sequence[int] | npt.NDArray[np.int64]) -> Self:
        """Return the slots `ixs`."""


class StepProcessor(Configurable[Any]):
    """Turns an environment's steps into items for a buffer."""

    @abstractmethod
    def reset(self, init_obs: Any) -> None:
        """Begin with the first observation of an episode, or of n parallel ones."""

    @abstractmethod
    def process(self, step: Any) -> Any:
        """Return the item for a step, or for n parallel steps."""
