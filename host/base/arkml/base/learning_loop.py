"""The turn of a learning loop: take samples, optimize, send the model, record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple


class TurnCounts(NamedTuple):
    """Samples that a turn took, and updates that it made."""

    samples: int
    updates: int


class LearningLoop(ABC):
    """
    The parts of a turn, which the learner of a hive and the trainers of `async_trainer` fill in.

    Their number of updates a turn, their pace and the ends of their loops are their own.
    """

    @abstractmethod
    def drain(self) -> int:
        """Take the samples that have arrived into the buffer, and return their number."""

    @property
    @abstractmethod
    def is_ready(self) -> bool:
        """True if updates may be made and sent: there are enough samples, and no pause."""

    @abstractmethod
    def optimize(self) -> int:
        """Make the updates of this turn, maybe none, and return their number."""

    @property
    @abstractmethod
    def is_sync_due(self) -> bool:
        """True if the model is to be sent to those that act with it."""

    @abstractmethod
    def sync(self) -> None:
        """Send the model."""

    @property
    @abstractmethod
    def is_record_due(self) -> bool:
        """True if there is something to record or to report."""

    @abstractmethod
    def record(self) -> None:
        """Record and report."""


def take_turn(loop: LearningLoop) -> TurnCounts:
    """Take one turn of a loop."""
    samples = loop.drain()
    updates = 0
    if loop.is_ready:
        updates = loop.optimize()
        if loop.is_sync_due:
            loop.sync()
    if loop.is_record_due:
        loop.record()
    return TurnCounts(samples, updates)
