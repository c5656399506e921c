"""The session records of one guest, through which its shim finds the queue of each session."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

from arkml.errors import ColumnsFull
from arkml.runtime.columns.arena import Arena
from arkml.runtime.shim import control_block as at

if TYPE_CHECKING:
    from arkml.runtime.columns.region import Region


class Records:
    """
    The session records of one guest, by handle index, once a session is opened.

    Its control block has their offset and their number, which is zero before.
    """

    __slots__ = (
        "_arena", "_capacity", "_control", "_limit", "offset", "regions", "require", "used",
    )  # fmt: skip

    def __init__(self, arena: Arena, control: int, limit: int) -> None:
        self._limit = limit
        self.used = 0
        """Bytes of column memory that are charged to the guest."""
        self.require: Callable[[int], None] | None = None
        """Raises GuestMemoryFull if as many more bytes are over the guest's limit."""
        self._arena = arena
        self._control = control
        self._capacity = self.offset = 0
        self.regions: dict[int, Region] = {}
        """The queues of the open sessions, by the index of their records."""

    def open(self, index: int) -> None:
        """Make room for the record of handle index `index`. Raises ColumnsFull."""
        if index >= self._capacity:
            self._resize(1 << index.bit_length())

    def start(self, index: int) -> int:
        """Return the index, in the arena's words, of the first word of a record."""
        return (self.offset + index * at.RECORD_SIZE) >> 2

    @property
    def submits(self) -> int:
        """The number of submits that were answered."""
        return self._arena.words[(self._control + at.SUBMITS) >> 2]

    def charge(self, size: int) -> None:
        """
        Charge `size` bytes of column memory to the guest, or credit them if negative.

        Raises ColumnsFull or GuestMemoryFull if that is over the limit.
        """
        if self.used + size > self._limit and size > 0:
            raise ColumnsFull(
                f"the sessions of one guest need {self.used + size} bytes of column memory,"
                f" over the limit of {self._limit}"
            )
        if size > 0 and self.require is not None:
            self.require(size)
        self.used += size

    def release(self) -> None:
        """Free the memory of the records. Safe to call twice."""
        capacity, self._capacity = self._capacity, 0
        self._free(self.offset, capacity)

    def _resize(self, capacity: int) -> None:
        offset = self._arena.allocate(capacity * at.RECORD_SIZE)
        former, count = self.offset, self._capacity
        ctypes.memmove(self._arena.base + offset, self._arena.base + former, count * at.RECORD_SIZE)
        self.offset, self._capacity = offset, capacity
        words = self._arena.words
        words[(self._control + at.RECORDS) >> 2] = offset
        words[(self._control + at.RECORD_COUNT) >> 2] = capacity
        for region in self.regions.values():
            region.locate()
        self._free(former, count)  # last: nothing names it any more, whatever a handler cuts off

    def _free(self, offset: int, capacity: int) -> None:
        if capacity:
            self._arena.free(offset, capacity * at.RECORD_SIZE)
