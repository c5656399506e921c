"""Slabs: blocks of column memory that hold the queues (regions) of many sessions side by side."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from typing import Any

import numpy as np

from arkml.batches import ROW, Batch
from arkml.errors import ColumnsFull
from arkml.limits import Limits
from arkml.runtime.columns.arena import Arena, block_bytes
from arkml.runtime.columns.metadata import SaidNames
from arkml.runtime.shim import control_block as at

_SLAB_BYTES = 64 << 20  # a larger slab is divided among several
_SPARE_BYTES = 256 << 20  # of regions for siblings that may never take them
_RESERVED_BYTES = 4 << 10  # of a new region, beyond its first row
_ALIKE_BYTES = 16 << 10  # of a region that is as large as those of its siblings before it must be


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of the regions of a slab: numbers of features and actions, and rows of capacity."""

    num_features: int
    num_actions: int
    training: bool
    rows: int

    def columns(self) -> list[tuple[int, Any, int]]:
        """Return, for each column, its record field, its dtype and its number of items in a row."""
        supplied = [(at.GIVEN, "<f4", self.num_actions)] if self.training else []
        return [
            (at.ROWS, ROW, 1),
            (at.FEATURES, "<f4", self.num_features),
            (at.ACTIONS, "<f4", self.num_actions),
            (at.VALUES, "<f4", 1),
            *supplied,
        ]

    def region_bytes(self) -> int:
        """Return the bytes of column memory that one region takes, in whole blocks."""
        return _region_bytes(self)

    def row_bytes(self) -> int:
        """Return the bytes of one row."""
        return sum(np.dtype(dtype).itemsize * width for _, dtype, width in self.columns())

    def of(self, rows: int) -> Shape:
        """Return the shape of a region of `rows` rows for the same session."""
        return Shape(self.num_features, self.num_actions, self.training, rows)


@lru_cache(256)
def _region_bytes(shape: Shape) -> int:
    return sum(
        block_bytes(shape.rows * np.dtype(dtype).itemsize * width)
        for _, dtype, width in shape.columns()
    )


class Slab:
    """
    The columns of `regions` regions, one after another, so that adjacent full ones make one view.
    """

    def __init__(self, arena: Arena, shape: Shape, regions: int) -> None:
        self._arena = arena
        self.shape = shape
        self._blocks: list[tuple[int, int]] = []
        self._columns: dict[int, tuple[int, Any, int]] = {}
        rows = regions * shape.rows
        for field, dtype, width in shape.columns():
            size = max(1, rows * width * np.dtype(dtype).itemsize)
            try:
                offset = arena.allocate(size)
            except ColumnsFull:
                self.release()
                raise
            self._blocks.append((offset, size))
            array = arena.array(offset, rows * width, dtype)
            matrix = array if field in (at.ROWS, at.VALUES) else array.reshape(rows, width)
            self._columns[field] = (offset, matrix, width * np.dtype(dtype).itemsize)
        self.free = list(range(regions))  # a heap: regions in use lie at the front
        self._regions = regions

    def is_unused(self) -> bool:
        """Return whether no region of the slab is in use."""
        return len(self.free) == self._regions

    def release(self) -> None:
        """Free the memory of the columns."""
        for offset, size in self._blocks:
            self._arena.free(offset, size)

    def offset(self, field: int, row: int) -> int:
        """Return the byte offset in the arena of row `row` of a column."""
        start, _, stride = self._columns[field]
        return start + row * stride

    def fields(self) -> list[int]:
        """Return the record fields of the columns."""
        return list(self._columns)

    def view(self, field: int, start: int = 0, stop: int | None = None) -> Any:
        """
        Return rows of a column as a view, None if the slab has no such column.

        ROWS: batches.ROW, [n]. FEATURES: float32, [n, num_features]. ACTIONS and GIVEN: float32,
        [n, num_actions]. VALUES: float32, [n].
        """
        column = self._columns.get(field)
        return None if column is None else column[1][start:stop]

    def batch(self, start: int, stop: int, keys: Any) -> Batch:
        """
        Return rows `start` to `stop` as a batch.

        keys: uint64, [] or [n], the keys of the rows' sessions.
        """
        return Batch(
            self.view(at.ROWS, start, stop),
            self.view(at.FEATURES, start, stop),
            self.view(at.ACTIONS, start, stop),
            self.view(at.VALUES, start, stop),
            keys,
            self.view(at.GIVEN, start, stop),
        )


class Columns:
    """
    The column memory of one guest, or of all guests of a fleet, used by one thread at a time.

    `siblings` is the number of guests. With several, a new region has room for `reserved_rows`
    rows, or for fewer if that takes more than 4 KiB.
    """

    def __init__(
        self, arena: Arena, limits: Limits, siblings: int = 1, reserved_rows: int = 1
    ) -> None:
        self.arena = arena
        self.limits = limits
        self.names = SaidNames()
        """Names of metadata that the shims of these guests recognize."""
        self._siblings = siblings
        self._slabs: dict[Shape, list[Slab]] = {}
        self._reserved_rows = min(reserved_rows, limits.rows)
        self._alike: dict[Shape, int] = {}  # rows of the regions of siblings, by shapes of one row
        self._spare = 0  # bytes of regions that are not in use
        self._returned: deque[tuple[Slab, int]] = deque()
        self._lock = threading.RLock()
        self._is_held = False  # the lock, by a method that must not be entered again
        self.version = 0
        """A number that changes whenever a region is taken or given back, or a record may move."""

    def first_rows(self, session: Shape) -> int:
        """Return the capacity, in rows, of a new region for a session with this shape."""
        if self._siblings == 1:
            return min(64, self.limits.rows)
        rows, row_bytes = self._reserved_rows, session.row_bytes()
        return self._alike.get(session) or max(1, min(rows, _RESERVED_BYTES // row_bytes))

    def grown_rows(self, shape: Shape, rows: int) -> int:
        """
        Return the new capacity of a region that must hold `rows` rows: at least twice the old.

        If the region of another guest of the fleet has grown larger, and that takes few bytes, the
        result is the capacity of that region.
        """
        session = shape.of(1)
        least = min(max(2 * shape.rows, rows), self.limits.rows)
        alike = self._alike.get(session, 0)
        if alike > least and shape.of(alike).region_bytes() <= _ALIKE_BYTES:
            return alike
        if self._siblings > 1:
            self._alike[session] = least
        return least

    def fit(self, shape: Shape, rows: int) -> None:
        """Give new regions for sessions of this shape a capacity of `rows` rows."""
        self._alike[shape.of(1)] = rows

    def take(self, shape: Shape) -> tuple[Slab, int]:
        """Return a free region of a shape, as its slab and its number there. Raises ColumnsFull."""
        with self._lock:
            try:
                self._is_held = True
                self.version += 1
                self._take_back()
                slab = next((one for one in self._slabs.get(shape, ()) if one.free), None)
                if slab is None:
                    slab = self._make(shape)
                self._spare -= shape.region_bytes()
                return slab, heappop(slab.free)
            finally:
                self._is_held = False

    def give(self, slab: Slab, region: int) -> None:
        """
        Return a region that `take` gave out.

        A finalizer may call it in the middle of `take`, which then reuses the region. The lock is
        reentrant, since a signal handler that raises may leave it locked.
        """
        self.version += 1
        self._returned.append((slab, region))
        if not self._is_held and self._lock.acquire(blocking=False):
            try:
                self._is_held = True
                self._take_back()
            finally:
                self._is_held = False
                self._lock.release()

    def _make(self, shape: Shape) -> Slab:
        """Return a new slab with a region for each sibling, or for as many as the limits allow."""
        size = shape.region_bytes()
        others = len(self._slabs.get(shape, ()))
        spares = min(_SLAB_BYTES, max(0, _SPARE_BYTES - self._spare)) // size
        # Side by side, so that one policy run reads the rows of all siblings as one view.
        slab = Slab(self.arena, shape, max(1, min(spares, self._siblings // (1 + others))))
        self._slabs.setdefault(shape, []).append(slab)
        self._spare += size * len(slab.free)
        return slab

    def _take_back(self) -> None:
        """Mark the returned regions as free, and free slabs that are unused."""
        while self._returned:
            slab, region = self._returned.popleft()
            heappush(slab.free, region)
            shape = slab.shape
            self._spare += shape.region_bytes()
            if slab.is_unused():
                self._spare -= shape.region_bytes() * len(slab.free)
                self._slabs[shape].remove(slab)
                if not self._slabs[shape]:
                    del self._slabs[shape]
                slab.release()
