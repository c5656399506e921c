"""Regions of the column memory that sessions push into, laid side by side for many guests."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from arkml.abi.catalog import APIS
from arkml.abi.layout import struct_size, unpack
from arkml.abi.schema import FixedStr, Struct
from arkml.batches import ROW, Batch, Metadata, MetadataLog
from arkml.errors import TooManyRows, Unavailable
from arkml.limits import Limits
from arkml.runtime import control as at
from arkml.runtime.arena import Arena
from arkml.runtime.control import Kind

METRICS: Mapping[int, Struct] = {
    struct_size(s): s for api in APIS for s in api.structs if s.name == "Metric"
}
"""How one metadata item is laid out, by its size."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What regions of one slab have in common; `rows` is the capacity of each."""

    num_features: int
    num_actions: int
    training: bool
    rows: int

    def columns(self) -> list[tuple[int, Any, int]]:
        """Record field, dtype and items a row of each column."""
        given = [(at.GIVEN, "<f4", self.num_actions)] if self.training else []
        return [
            (at.ROWS, ROW, 1),
            (at.FEATURES, "<f4", self.num_features),
            (at.ACTIONS, "<f4", self.num_actions),
            (at.VALUES, "<f4", 1),
            *given,
        ]

    def row_bytes(self) -> int:
        """Bytes of column memory that one row takes."""
        return sum(np.dtype(dtype).itemsize * width for _, dtype, width in self.columns())


class Slab:
    """Columns of `regions` regions, one after the other: adjacent full regions are one view."""

    def __init__(self, arena: Arena, shape: Shape, regions: int) -> None:
        self._arena = arena
        self.shape = shape
        self._blocks: list[tuple[int, int]] = []
        self._columns: dict[int, tuple[int, Any, int]] = {}
        rows = regions * shape.rows
        for field, dtype, width in shape.columns():
            size = max(1, rows * width * np.dtype(dtype).itemsize)
            offset = arena.allocate(size)
            self._blocks.append((offset, size))
            array = arena.array(offset, rows * width, dtype)
            matrix = array if field in (at.ROWS, at.VALUES) else array.reshape(rows, width)
            self._columns[field] = (offset, matrix, width * np.dtype(dtype).itemsize)
        self.free = list(range(regions - 1, -1, -1))
        self._regions = regions

    def is_unused(self) -> bool:
        return len(self.free) == self._regions

    def release(self) -> None:
        """Give the columns' memory back."""
        for offset, size in self._blocks:
            self._arena.free(offset, size)

    def offset(self, field: int, row: int) -> int:
        """Where row `row` of a column begins."""
        start, _, stride = self._columns[field]
        return start + row * stride

    def fields(self) -> list[int]:
        return list(self._columns)

    def view(self, field: int, start: int = 0, stop: int | None = None) -> Any:
        """Rows of a column, or None where the slab has no such column."""
        column = self._columns.get(field)
        return None if column is None else column[1][start:stop]

    def batch(self, start: int, stop: int, keys: Any) -> Batch:
        """Rows `start` to `stop`, whoever owns them."""
        fields = (at.ROWS, at.FEATURES, at.ACTIONS, at.VALUES)
        views = [self.view(field, start, stop) for field in fields]
        return Batch(*views, keys, self.view(at.GIVEN, start, stop))


class Columns:
    """Slabs of one guest, or of the guests of one fleet, which is never stepped by two threads."""

    def __init__(self, arena: Arena, limits: Limits, siblings: int = 1) -> None:
        self.arena = arena
        self.limits = limits
        self._siblings = siblings
        self._slabs: dict[Shape, list[Slab]] = {}
        self.first_rows = 1 if siblings > 1 else 64
        self.version = 0
        """Changes whenever a region is taken or given back."""

    def take(self, shape: Shape) -> tuple[Slab, int]:
        """A free region of that shape: its slab and number."""
        if shape.rows * shape.row_bytes() > self.limits.column_bytes:
            raise Unavailable(
                f"{shape.rows} rows of {shape.num_features} features and {shape.num_actions}"
                f" actions need more than {self.limits.column_bytes} bytes of column memory"
            )
        self.version += 1
        slabs = self._slabs.setdefault(shape, [])
        for slab in slabs:
            if slab.free:
                return slab, slab.free.pop()
        slab = Slab(self.arena, shape, max(1, self._siblings // (1 + len(slabs))))
        slabs.append(slab)
        return slab, slab.free.pop()

    def give(self, slab: Slab, region: int) -> None:
        """Take a region back."""
        self.version += 1
        slab.free.append(region)
        slab.free.sort(reverse=True)
        if slab.is_unused():
            self._slabs[slab.shape].remove(slab)
            slab.release()


_COUNT = at.COUNT >> 2


class Region:
    """The queue of one session: its place in a slab, and its record, which tells the shim."""

    def __init__(self, columns: Columns, record: RecordPlace, shape: Shape, key: int) -> None:
        self._columns = columns
        self._words = columns.arena.words
        self._record = record
        self.slab, self.number = columns.take(shape)
        self.keys = np.uint64(key)
        self.session: Any = None
        """Whatever answers the submits of this queue; the runtime does not look at it."""
        self._cached: Batch | None = None
        self._metadata = (0, 0)

    def count(self) -> int:
        """Rows pushed since the last submit."""
        return self._words[self._record.word(at.COUNT)]

    def count_word(self) -> int:
        """Where the arena's words say how many rows were pushed."""
        return self._record.start + _COUNT

    def rows(self) -> slice:
        """The rows pushed, as a slice of the slab's columns."""
        start = self.number * self.slab.shape.rows
        return slice(start, start + self.count())

    def batch(self) -> Batch:
        count = self._words[self._record.start + _COUNT]
        cached = self._cached
        if cached is not None and len(cached.rows) == count:
            return cached
        start = self.number * self.slab.shape.rows
        self._cached = self.slab.batch(start, start + count, self.keys)
        return self._cached

    def metadata(self) -> MetadataLog:
        """What came with the rows, in push order."""
        arena, record = self._columns.arena, self._record
        start = self._words[record.word(at.METADATA)]
        used = self._words[record.word(at.METADATA_USED)]
        log = arena.bytes[start : start + used]
        found: list[Metadata] = []
        position = 0
        while position < used:
            row, items, size, _ = np.frombuffer(log, "<u4", 4, position).tolist()
            position += at.METADATA_HEADER
            for _ in range(items):
                found.append(_item(row, bytes(log[position : position + size])))
                position += size
        return found

    def clear(self) -> None:
        for field in (at.COUNT, at.ENDED, at.METADATA_USED):
            self._words[self._record.word(field)] = 0

    def publish(self, handle: int, kind: Kind) -> None:
        """Write the record: from now on the shim accepts `handle`."""
        shape, record = self.slab.shape, self._record
        self._place()
        for field, value in (
            (at.KIND, kind),
            (at.NUM_FEATURES, shape.num_features),
            (at.NUM_ACTIONS, shape.num_actions),
        ):
            self._words[record.word(field)] = value
        self._columns.arena.numbers[record.word(at.HANDLE) // 2] = handle

    def grow(self, rows: int, metadata_bytes: int) -> None:
        """Make room for `rows` rows and `metadata_bytes` of metadata, keeping what is there."""
        limits = self._columns.limits
        if rows > limits.rows:
            raise TooManyRows(f"a batch of {rows} rows is over the limit of {limits.rows}")
        if metadata_bytes > limits.metadata_bytes:
            raise TooManyRows(
                f"{metadata_bytes} bytes of metadata in a batch are over the limit of"
                f" {limits.metadata_bytes}"
            )
        shape = self.slab.shape
        if rows > shape.rows:
            self.move(min(max(2 * shape.rows, rows), limits.rows))
        if metadata_bytes > self._metadata[1]:
            self._grow_metadata(metadata_bytes)

    def move(self, capacity: int) -> None:
        """Move to a region of `capacity` rows, with the rows pushed so far."""
        old, old_rows, shape = self.slab, self.rows(), self.slab.shape
        new = Shape(shape.num_features, shape.num_actions, shape.training, capacity)
        slab, number = self._columns.take(new)
        start = number * capacity
        for field in (at.ROWS, at.FEATURES, at.GIVEN):
            source = old.view(field, old_rows.start, old_rows.stop)
            if source is not None:
                slab.view(field, start, start + len(source))[:] = source
        number, self.number, self.slab = self.number, number, slab
        self._columns.give(old, number)
        self._place()

    def close(self) -> None:
        """Forget everything; the handle means nothing from now on."""
        record = self._record
        self._columns.arena.numbers[record.word(at.HANDLE) // 2] = 0
        for field in range(at.KIND, at.RECORD_SIZE, 4):
            self._words[record.word(field)] = 0
        if self._metadata[1]:
            self._columns.arena.free(*self._metadata)
        self._metadata = (0, 0)
        self._columns.give(self.slab, self.number)
        record.release()

    def _place(self) -> None:
        slab, record = self.slab, self._record
        start = self.number * slab.shape.rows
        self._cached = None
        slab.view(at.VALUES, start, start + slab.shape.rows)[:] = 0
        self._words[record.word(at.CAPACITY)] = slab.shape.rows
        for field in slab.fields():
            self._words[record.word(field)] = slab.offset(field, start)

    def _grow_metadata(self, size: int) -> None:
        arena, record = self._columns.arena, self._record
        size = max(1024, 1 << (size - 1).bit_length())
        offset = arena.allocate(size)
        old, old_size = self._metadata
        if old_size:
            used = self._words[record.word(at.METADATA_USED)]
            ctypes.memmove(arena.base + offset, arena.base + old, used)
            arena.free(old, old_size)
        self._metadata = (offset, size)
        self._words[record.word(at.METADATA)] = offset
        self._words[record.word(at.METADATA_CAPACITY)] = size


class RecordPlace:
    """Where one session record lies, as an index into the arena's words; records may move."""

    __slots__ = ("_index", "_table", "start")

    def __init__(self, table: Records, index: int) -> None:
        self._table = table
        self._index = index
        self.locate()

    def locate(self) -> None:
        """Look again where the records lie."""
        self.start = (self._table.offset + self._index * at.RECORD_SIZE) >> 2

    def word(self, field: int) -> int:
        """Index of a record's field in the arena's words."""
        return self.start + (field >> 2)

    def release(self) -> None:
        self._table.close(self._index)


class Records:
    """The session records of one guest, by handle index; the control block says where they are."""

    def __init__(self, arena: Arena, control: int) -> None:
        self._arena = arena
        self._control = control
        self._capacity = 2
        self.offset = arena.allocate(self._capacity * at.RECORD_SIZE)
        self._places: dict[int, RecordPlace] = {}
        self.regions: dict[int, Region] = {}
        self._publish()

    def open(self, index: int) -> RecordPlace:
        """Room for the record of handle index `index`."""
        if index >= self._capacity:
            self._resize(1 << index.bit_length())
        place = self._places[index] = RecordPlace(self, index)
        return place

    def close(self, index: int) -> None:
        self.regions.pop(index, None)
        self._places.pop(index, None)

    def release(self) -> None:
        """Give the records' memory back."""
        self._arena.free(self.offset, self._capacity * at.RECORD_SIZE)

    def _resize(self, capacity: int) -> None:
        offset = self._arena.allocate(capacity * at.RECORD_SIZE)
        size = self._capacity * at.RECORD_SIZE
        ctypes.memmove(self._arena.base + offset, self._arena.base + self.offset, size)
        self._arena.free(self.offset, size)
        self.offset, self._capacity = offset, capacity
        for place in self._places.values():
            place.locate()
        self._publish()

    def _publish(self) -> None:
        words = self._arena.words
        words[(self._control + at.RECORDS) >> 2] = self.offset
        words[(self._control + at.RECORD_COUNT) >> 2] = self._capacity


def _item(row: int, data: bytes) -> Metadata:
    struct = METRICS[len(data)]
    fields = unpack(struct, data)
    name = fields["name"]
    if not isinstance(struct.fields[0].type, FixedStr):
        name = bytes(name).partition(b"\0")[0].decode("utf-8", "replace")
    return Metadata(row, name, fields["value"])
