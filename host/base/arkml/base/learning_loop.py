"""A learning loop, in turns: take samples, optimize, send the model, record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple


class TurnCounts(NamedTuple):
    """The numbers of samples and of updates in one turn of a learning loop."""

    samples: int
    updates: int


class LearningLoop(ABC):
    """
    The steps of a turn, implemented by the hive's learner and the trainers of `async_trainer`.

    The implementations decide the number of updates in a turn, the pace and the end of the loop
    (decision 17).
    """

    @abstractmethod
    def drain(self) -> int:
        """Move arrived samples into the buffer, and return their number."""

    @property
    @abstractmethod
    def is_ready(self) -> bool:
        """True if updates may be made: there are enough samples, and training is not paused."""

    @abstractmethod
    def optimize(self) -> int:
        """Make the updates of this turn, possibly none, and return their number."""

    @property
    @abstractmethod
    def is_sync_due(self) -> bool:
        """True if the model is to be sent to the actors now."""

    @abstractmethod
    def sync(self) -> None:
        """Send the model to the actors."""

    @property
    @abstractmethod
    def is_record_due(self) -> bool:
        """True if there is anything to record or report."""

    @abstractmethod
    def record(self) -> None:
        """Record values of this turn, and report progress."""


def take_turn(loop: LearningLoop) -> TurnCounts:
    """Take one turn of a learning loop, and return how much was done."""
    samples = loop.drain()
    updates = 0
    if loop.is_ready:
        updates = loop.optimize()
        if loop.is_sync_due:
            loop.sync()
    if loop.is_record_due:
        loop.record()
    return TurnCounts(samples, updates)
