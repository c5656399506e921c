"""The session records of one guest, through which its shim finds the queue of each session."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from arkml.errors import ColumnsFull
from arkml.runtime.columns.arena import Arena
from arkml.runtime.shim import control_block as at


class RecordPlace:
    """
    The place of one session record, which may move.

    `index` is that of its handle. In the arena's words `start` is the index of its first word, and
    `submits` that of the guest's number of answered submits.
    """

    __slots__ = ("_table", "index", "start", "submits")

    def __init__(self, table: Records, index: int) -> None:
        self._table = table
        self.index = index
        self.submits: int = table.submits
        self.locate()

    def locate(self) -> None:
        """Update `start` after the records have moved."""
        self.start = (self._table.offset + self.index * at.RECORD_SIZE) >> 2

    def word(self, field: int) -> int:
        """Return the index of the record's field in the arena's words."""
        return self.start + (field >> 2)

    def charge(self, size: int) -> None:
        """Charge `size` bytes of column memory to the guest. Raises ColumnsFull if positive."""
        self._table.charge(size)

    def release(self) -> None:
        """Give up the record."""
        self._table.close(self.index)


class Records:
    """
    The session records of one guest, by handle index, once a session is opened.

    Its control block has their offset and their number, which is zero before.
    """

    __slots__ = (
        "_arena", "_capacity", "_control", "_limit", "_places", "offset", "require", "submits",
        "used",
    )  # fmt: skip

    def __init__(self, arena: Arena, control: int, limit: int) -> None:
        self._limit = limit
        self.used = 0
        """Bytes of column memory that are charged to the guest."""
        self.require: Callable[[int], None] | None = None
        """Raises GuestMemoryFull if as many more bytes are over the guest's limit."""
        self._arena = arena
        self._control = control
        self.submits = (control + at.SUBMITS) >> 2
        """The index of the number of answered submits in the arena's words."""
        self._capacity = self.offset = 0
        self._places: dict[int, RecordPlace] = {}

    def open(self, index: int) -> RecordPlace:
        """Return the place of the record for handle index `index`. Raises ColumnsFull."""
        if index >= self._capacity:
            self._resize(1 << index.bit_length())
        place = self._places[index] = RecordPlace(self, index)
        return place

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

    def close(self, index: int) -> None:
        """Give up the record of handle index `index`."""
        self._places.pop(index, None)

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
        for place in self._places.values():
            place.locate()
        self._free(former, count)  # last: nothing names it any more, whatever a handler cuts off

    def _free(self, offset: int, capacity: int) -> None:
        if capacity:
            self._arena.free(offset, capacity * at.RECORD_SIZE)
