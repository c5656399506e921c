"""The queues of many guests, examined and emptied together."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from arkml.runtime.columns.region import CLEARED, Region
from arkml.runtime.columns.slabs import Columns
from arkml.runtime.shim import control_block as at


class Queues:
    """
    The queues of many guests; `regions[3]` has the queues of the fourth guest.

    The object is valid while `Columns.version` stays the same.
    """

    def __init__(self, columns: Columns, regions: Sequence[Collection[Region]]) -> None:
        self._words = columns.arena.word_array
        found = [(index, each) for index, of in enumerate(regions) for each in of]
        self._guests = np.array([index for index, _ in found], np.intp)
        self._records = np.array([each.record for _, each in found], np.intp)

    def waiting(self) -> list[int]:
        """Return the indices of guests with rows that wait for a submit, each once."""
        counts = self._words[self._records + (at.COUNT >> 2)]
        guests: list[int] = np.unique(self._guests[counts != 0]).tolist() if counts.any() else []
        return guests

    def clear(self) -> None:
        """Empty all queues of rows that were not submitted."""
        for field in CLEARED:
            self._words[self._records + (field >> 2)] = 0
