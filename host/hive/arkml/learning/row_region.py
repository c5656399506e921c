"""A region of a store of rows: the slots that its rows take, oldest first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from arkml.learning.row_memory import lazy_zeros

Slots = npt.NDArray[np.int64]


class RowRegion:
    """
    A ring of slots. Its rows have numbers, from 0 in the order in which they were added.

    A slot belongs to one region at a time, and may come from anywhere in the store.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Most rows held."""
        self.rows = 0
        """Rows added, which is the number of the next one."""
        self.oldest = 0
        """Number of the oldest row held."""
        self.held = 0
        """Rows in the region."""
        self.transitions = 0
        """Rows held that are linked with a next one, which the owner counts."""
        self._slots: Slots = lazy_zeros((limit,), np.int64)

    def slots(self, numbers: Slots) -> Slots:
        """Return the slots of rows that are held, by number: int64, [n]."""
        return self._slots[numbers % self.limit]

    def push(self, slots: Slots) -> None:
        """Add rows in these slots: int64, [n]. There must be room for them."""
        self._slots[np.arange(self.rows, self.rows + len(slots)) % self.limit] = slots
        self.rows += len(slots)
        self.held += len(slots)

    def release(self, count: int) -> Slots:
        """Give up the `count` oldest rows and return their slots."""
        slots = self.slots(np.arange(self.oldest, self.oldest + count))
        self.oldest += count
        self.held -= count
        return slots

    def held_slots(self) -> Slots:
        """Return the slots of all rows held, oldest first."""
        return self.slots(np.arange(self.oldest, self.rows))

    def draw(self, random: np.random.Generator, count: int) -> Slots:
        """Draw slots of rows with replacement. There must be at least one row."""
        return self.slots(random.integers(self.oldest, self.rows, count))
