"""The code of a kernel: one function for each stage, over values at fixed places in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from arkml.errors import ModelRejected
from arkml.policies.kernel.assembler import F32, I32, V128, FunctionCode, Module
from arkml.policies.kernel.functions import KNOWN, Functions
from arkml.policies.kernel.graph import (
    ZERO,
    Arranged,
    Constant,
    Pattern,
    Picked,
    Places,
    Ranked,
    Reduced,
    Value,
)
from arkml.policies.kernel.plan import Expression, Loaded, Made, Operated, Stage, base
from arkml.policies.kernel.pointwise import OPERATIONS

MOST_BYTES = 64 << 20
"""Most bytes of memory: of the weights, of all that is computed, and of tables."""

MOST_CODE = 512 << 10
"""Most bytes of instructions."""

_FLOAT, _VECTOR = 4, 16  # bytes
_START = 16  # of the memory that is used
_SLACK = 16  # that loads of whole vectors may read behind a value
_TOGETHER = 8  # vectors of a product that are summed up at the same time
_UNROLLED = 4
_BLOCK = 64  # terms of a long sum that are summed up by themselves, which keeps its rounding small
_RUNS = 16  # of elements side by side that are copied without a table

Addresses: TypeAlias = npt.NDArray[np.int64]


class KernelMemory:
    """The addresses of values in the memory of a module, and its initial content."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._places: dict[tuple[int, int], int] = {}  # by the id of a value, and its padding
        self._kept: list[Value] = []  # so that no id is used again
        self.size = _START

    def room(self, size: int) -> int:
        """Return the address of unused memory for `size` bytes. Raises ModelRejected."""
        address = self.size
        self.size = -(-(address + size + _SLACK) // _VECTOR) * _VECTOR
        if self.size > MOST_BYTES:
            raise ModelRejected(f"the kernel takes more than {MOST_BYTES >> 20} MiB")
        return address

    def address(self, value: Value) -> int:
        """Return the address of a value; a constant is stored at the first request."""
        inner, start = base(value)
        return self._padded(inner, 0) + _FLOAT * start

    def matrix(self, value: Value) -> tuple[int, int]:
        """
        Return the address of matrices, [batch, rows, columns], and the bytes from row to row.

        Rows of constants are padded to whole vectors.
        """
        columns = value.shape[-1]
        padding = -columns % _FLOAT if isinstance(value, Constant) else 0
        if not padding:
            return self.address(value), _FLOAT * columns
        return self._padded(value, padding), _FLOAT * (columns + padding)

    def tiles(self, value: Constant, vectors: int) -> int:
        """
        Return the address of one matrix, [1, rows, columns], cut into columns of `vectors` vectors.

        Each column is stored separately, row by row; the last one may have fewer vectors.
        """
        columns = value.shape[2]
        padded = np.pad(value.numbers[0], [(0, 0), (0, -columns % _FLOAT)]).astype("<f4")
        width = _FLOAT * vectors
        parts = [padded[:, start : start + width] for start in range(0, columns, width)]
        return self.stored(b"".join(part.tobytes() for part in parts))

    def stored(self, content: bytes) -> int:
        """Store bytes as initial content of the memory, and return their address."""
        address = self.room(len(content))
        self._module.data(address, content)
        return address

    def _padded(self, value: Value, padding: int) -> int:
        key = id(value), padding
        if key not in self._places:
            self._kept.append(value)
            if isinstance(value, Constant):
                numbers = value.numbers
                if padding:
                    sides = [(0, 0)] * (numbers.ndim - 1) + [(0, padding)]
                    numbers = np.pad(numbers, sides)
                self._places[key] = self.stored(
                    numbers.astype(numbers.dtype.newbyteorder("<")).tobytes()
                )
            else:
                self._places[key] = self.room(_FLOAT * value.count)
        return self._places[key]


class Emission:
    """Writes the functions of a kernel's stages."""

    def __init__(self, module: Module, memory: KernelMemory, functions: Functions) -> None:
        self._module = module
        self._memory = memory
        self._functions = functions
        self._code = 0

    def add(self, stage: Stage) -> int:
        """Add the function of a stage, and return its index. Raises ModelRejected."""
        f = FunctionCode()
        if stage.value.count:
            self._write(f, stage)
        self._code += f.size
        if self._code > MOST_CODE:
            raise ModelRejected(f"the kernel has more than {MOST_CODE >> 10} KiB of instructions")
        return self._module.add(f)

    def _write(self, f: FunctionCode, stage: Stage) -> None:
        if stage.product is not None and stage.expression is not None:
            _ProductLoops(f, self._memory, self._functions, stage).write()
        elif stage.expression is not None:
            self._pointwise(f, stage.value, stage.expression, stage.width)
        elif isinstance(stage.value, Arranged):
            self._moved(f, stage.value)
        elif isinstance(stage.value, Reduced):
            self._reduced(f, stage.value)
        elif isinstance(stage.value, Ranked):
            self._ranked(f, stage.value)
        elif isinstance(stage.value, Picked):
            self._picked(f, stage.value)

    def _pointwise(self, f: FunctionCode, value: Value, expression: Expression, width: int) -> None:
        """Rows of `width` elements, of which the last vector may be a part."""
        row, first, column, place = (f.local(I32) for _ in range(4))
        out = self._memory.address(value)
        at = _Places(self._memory, place, column, row)
        whole, rest = divmod(width, _FLOAT)
        rows = value.count // width
        if rows == 1:
            whole, rest = whole + (rest > 0), 0  # the rest of the vector is room
        for local in (row, first):
            f.i32(0)
            f.set(local)
        with f.loop(rows, (row, _FLOAT), (first, _FLOAT * width)):
            f.i32(0)
            f.set(column)
            f.get(first)
            f.set(place)
            if whole:
                with f.loop(whole, (column, _VECTOR), (place, _VECTOR)):
                    f.get(place)
                    _express(f, self._functions, expression, at, 0, 0, 0)
                    f.memory("v128.store", out)
            if rest:
                result = f.local(V128)
                _express(f, self._functions, expression, at, 0, 0, 0)
                f.set(result)
                _store_lanes(f, place, result, out, rest)

    def _moved(self, f: FunctionCode, value: Arranged) -> None:
        sources = self._addresses(value)
        starts = np.flatnonzero(np.diff(sources, prepend=sources[0] - 2 * _FLOAT) != _FLOAT)
        out = self._memory.address(value)
        if len(starts) <= _RUNS and value.count >= _FLOAT * len(starts):
            for start, end in zip(starts, [*starts[1:], value.count], strict=True):
                _copy(f, int(sources[start]), out + _FLOAT * int(start), int(end - start))
            return
        width = 1
        if value.count % _FLOAT == 0 and not (starts % _FLOAT).any():
            width, sources = _FLOAT, sources[::_FLOAT]
        table = self._memory.stored(sources.astype("<i4").tobytes())
        load, store = ("v128.load", "v128.store") if width > 1 else ("i32.load", "i32.store")
        entry, place = f.local(I32), f.local(I32)
        for local in (entry, place):
            f.i32(0)
            f.set(local)
        turns, rest = divmod(len(sources), _UNROLLED)
        for repeats, unrolled in ((turns, _UNROLLED), (1, rest)):
            if not repeats or not unrolled:
                continue
            with f.loop(repeats, (entry, _FLOAT * unrolled), (place, _FLOAT * width * unrolled)):
                for turn in range(unrolled):
                    f.get(place, entry)
                    f.memory("i32.load", table + _FLOAT * turn)
                    f.memory(load)
                    f.memory(store, out + _FLOAT * width * turn)

    def _addresses(self, value: Arranged) -> Addresses:
        """Return the address of each element's source: int64, [count]."""
        parts = [self._memory.address(one) + _FLOAT * np.arange(one.count) for one in value.sources]
        places: Places = value.places.ravel()
        zero = self._memory.stored(bytes(_FLOAT)) if (places == ZERO).any() else 0
        addresses: Addresses = np.append(np.concatenate(parts), zero)[places]
        return addresses

    def _reduced(self, f: FunctionCode, value: Reduced) -> None:
        rows, width = value.source.shape
        source, out = self._memory.address(value.source), self._memory.address(value)
        at, place = f.local(I32), f.local(I32)
        for local in (at, place):
            f.i32(0)
            f.set(local)
        if not width and value.operation != "add":
            raise ModelRejected(f"the {value.operation} of nothing")
        with f.loop(rows, (at, _FLOAT * width), (place, _FLOAT)):
            f.get(place)
            self._reduce_row(f, value.operation, at, source, width)
            f.memory("f32.store", out)

    def _reduce_row(
        self, f: FunctionCode, operation: str, at: int, source: int, width: int
    ) -> None:
        """Push the reduction of a row: by four lanes first, then one by one."""
        whole, rest = divmod(width, _FLOAT)
        if not width:
            f.f32(0.0)
        if whole:
            total, place = f.local(V128), f.local(I32)
            f.get(at)
            f.memory("v128.load", source)
            f.set(total)
            if whole > 1:
                f.get(at)
                f.set(place)
                with f.loop(whole - 1, (place, _VECTOR)):
                    f.get(total, place)
                    f.memory("v128.load", source + _VECTOR)
                    f.op(f"f32x4.{operation}")
                    f.set(total)
            for pair in ((0, 1), (2, 3)):
                for lane in pair:
                    f.get(total)
                    f.lane(lane)
                f.op(f"f32.{operation}")
            f.op(f"f32.{operation}")
        for index in range(rest):
            f.get(at)
            f.memory("f32.load", source + _VECTOR * whole + _FLOAT * index)
            if whole or index:
                f.op(f"f32.{operation}")

    def _ranked(self, f: FunctionCode, value: Ranked) -> None:
        rows, width = value.source.shape
        source, out = self._memory.address(value.source), self._memory.address(value)
        at, place, index, found = (f.local(I32) for _ in range(4))
        x, highest = f.local(F32), f.local(F32)
        for local in (at, place):
            f.i32(0)
            f.set(local)
        with f.loop(rows, (place, _FLOAT)):
            f.get(at)
            f.memory("f32.load", source)
            f.set(highest)
            f.i32(0)
            f.set(found)
            f.i32(0)
            f.set(index)
            with f.loop(width, (at, _FLOAT), (index, 1)):
                f.get(at)
                f.memory("f32.load", source)
                f.set(x)
                f.get(index, found, x, highest)
                f.op("f32.ge" if value.is_last else "f32.gt", "select")
                f.set(found)
                f.get(x, highest, x, highest)
                f.op("f32.gt", "select")
                f.set(highest)
            f.get(place, found)
            f.memory("i32.store", out)

    def _picked(self, f: FunctionCode, value: Picked) -> None:
        outer, blocks, inner = value.source.shape
        source, out = self._memory.address(value.source), self._memory.address(value)
        numbers = self._memory.address(value.numbers)
        at, number, place, begin = (f.local(I32) for _ in range(4))
        for local in (begin, place):
            f.i32(0)
            f.set(local)
        with f.loop(outer, (begin, _FLOAT * blocks * inner)):
            f.i32(0)
            f.set(at)
            with f.loop(value.numbers.count, (at, _FLOAT)):
                f.get(at)
                f.memory("i32.load", numbers)
                f.set(number)
                _held_inside(f, number, blocks)
                f.get(number)
                f.i32(_FLOAT * inner)
                f.op("i32.mul")
                f.get(begin)
                f.op("i32.add")
                f.set(number)
                with f.loop(inner, (number, _FLOAT), (place, _FLOAT)):
                    f.get(place, number)
                    f.memory("i32.load", source)
                    f.memory("i32.store", out)


class _Places:
    """Where the elements of an expression lie: locals with offsets in bytes."""

    def __init__(self, memory: KernelMemory, place: int, column: int, row: int) -> None:
        self._memory = memory
        self._place = place
        self._column = column
        self._row = row

    def load(self, f: FunctionCode, value: Value, pattern: Pattern, offsets: Sequence[int]) -> None:
        """Push four elements; offsets: further bytes of the place, the column and the row."""
        address, (place, column, row) = self._memory.address(value), offsets
        match pattern:
            case Pattern.EACH:
                f.get(self._place)
                f.memory("v128.load", address + place)
            case Pattern.OF_COLUMN:
                f.get(self._column)
                f.memory("v128.load", address + column)
            case Pattern.OF_ROW:
                f.get(self._row)
                f.memory("v128.load32_splat", address + row)
            case _:
                f.i32(0)
                f.memory("v128.load32_splat", address)


def _express(
    f: FunctionCode,
    functions: Functions,
    expression: Expression,
    at: _Places,
    *offsets: int,
    made: int = 0,
) -> None:
    """Push four elements of an expression; `made` is the local of the product's."""
    match expression:
        case Loaded(value=value, pattern=pattern):
            at.load(f, value, pattern, offsets)
        case Made():
            f.get(made)
        case Operated(operation=operation, sources=sources):
            for source in sources:
                _express(f, functions, source, at, *offsets, made=made)
            if operation in KNOWN:
                f.call(functions.index(operation))
            else:
                OPERATIONS[operation](f)


class _ProductLoops:
    """
    The loops of one product: over batches, rows, columns, and the summed dimension.

    Several rows and vectors of columns are summed up at the same time, in registers.
    """

    def __init__(
        self, f: FunctionCode, memory: KernelMemory, functions: Functions, stage: Stage
    ) -> None:
        assert stage.product is not None
        assert stage.expression is not None
        self._f, self._memory, self._functions = f, memory, functions
        self._expression = stage.expression
        product = stage.product
        self._batch, self._rows, self._inner = product.left.shape
        self._columns = product.right.shape[2]
        self._is_shared = product.right.shape[0] == 1
        self._left = memory.address(product.left)
        self._is_tiled = self._batch * self._rows == 1 and isinstance(product.right, Constant)
        if self._is_tiled and isinstance(product.right, Constant):
            self._right, self._stride = memory.tiles(product.right, _TOGETHER), 0
        else:
            self._right, self._stride = memory.matrix(product.right)
        self._out = memory.address(stage.value)
        self._left_row, self._right_batch, self._right_tile = (f.local(I32) for _ in range(3))
        self._place, self._first, self._column, self._row = (f.local(I32) for _ in range(4))
        self._at = _Places(memory, self._place, self._column, self._row)

    def write(self) -> None:
        f = self._f
        for local in (self._left_row, self._right_batch, self._first, self._row):
            f.i32(0)
            f.set(local)
        apart = 0 if self._is_shared else self._inner * self._stride
        together = min(self._rows, _UNROLLED)
        with f.loop(self._batch, (self._right_batch, apart)):
            for rows in (together, self._rows % together):
                if rows:
                    turns = self._rows // together if rows == together else 1
                    self._write_rows(rows, turns)

    def _write_rows(self, rows: int, turns: int) -> None:
        f = self._f
        vectors = max(1, _TOGETHER // rows)
        tiles = self._columns // _FLOAT // vectors
        rest = -(-self._columns // _FLOAT) - tiles * vectors
        steps = [
            (self._left_row, _FLOAT * rows * self._inner),
            (self._first, _FLOAT * rows * self._columns),
            (self._row, _FLOAT * rows),
        ]
        with f.loop(turns, *steps):
            f.i32(0)
            f.set(self._column)
            f.get(self._right_batch)
            f.set(self._right_tile)
            f.get(self._first)
            f.set(self._place)
            if tiles:
                size = _VECTOR * vectors
                apart = size * self._inner if self._is_tiled else size
                moves = (self._column, size), (self._place, size), (self._right_tile, apart)
                with f.loop(tiles, *moves):
                    self._tile(rows, vectors)
            if rest:
                self._tile(rows, rest, self._columns % _FLOAT)

    def _tile(self, rows: int, vectors: int, lanes: int = 0) -> None:
        """Compute a tile, of whose last vectors only `lanes` are stored if that is not 0."""
        f = self._f
        parts = max(1, min(_UNROLLED, _TOGETHER // (rows * vectors)))
        sums = [
            [[f.local(V128) for _ in range(parts)] for _ in range(vectors)] for _ in range(rows)
        ]
        left, right, turned = f.local(I32), f.local(I32), f.local(V128)
        weights = [f.local(V128) for _ in range(vectors)]
        for one in (vector for row in sums for vector in row):
            self._clear(one)
        f.get(self._left_row)
        f.set(left)
        f.get(self._right_tile)
        f.set(right)
        stride = _VECTOR * vectors if self._is_tiled else self._stride

        def add(index: int) -> None:
            for number, local in enumerate(weights):
                f.get(right)
                f.memory("v128.load", self._right + index * stride + _VECTOR * number)
                f.set(local)
            for number, row in enumerate(sums):
                f.get(left)
                f.memory("v128.load32_splat", self._left + _FLOAT * (number * self._inner + index))
                f.set(turned)
                for vector, local in zip(row, weights, strict=True):
                    part = vector[index % parts - parts]  # behind the total of blocks
                    f.get(part, turned, local)
                    f.op("f32x4.mul", "f32x4.add")
                    f.set(part)

        def add_up(count: int) -> None:
            turns, rest = divmod(count, _UNROLLED)
            if turns:
                with f.loop(turns, (left, _FLOAT * _UNROLLED), (right, stride * _UNROLLED)):
                    for index in range(_UNROLLED):
                        add(index)
            for index in range(rest):
                add(index)

        blocks = self._inner // _BLOCK if self._inner >= 2 * _BLOCK else 0
        if blocks:
            every = [vector for row in sums for vector in row]
            totals = [f.local(V128) for _ in every]
            self._clear(totals)
            with f.loop(blocks):
                add_up(_BLOCK)
                for total, vector in zip(totals, every, strict=True):
                    for local in vector:
                        f.get(total, local)
                        f.op("f32x4.add")
                        f.set(total)
                    self._clear(vector)
            for total, vector in zip(totals, every, strict=True):
                vector.insert(0, total)
        add_up(self._inner - blocks * _BLOCK)
        f.release(left, right, turned, *weights)
        self._store(sums, lanes)
        f.release(*(local for row in sums for vector in row for local in vector))

    def _clear(self, vectors: Sequence[int]) -> None:
        for one in vectors:
            self._f.floats(0.0)
            self._f.set(one)

    def _store(self, sums: Sequence[Sequence[Sequence[int]]], lanes: int) -> None:
        f = self._f
        is_last = self._batch * self._rows == 1
        for number, row in enumerate(sums):
            for index, parts in enumerate(row):
                total = parts[0]
                for other in parts[1:]:
                    f.get(total, other)
                    f.op("f32x4.add")
                    f.set(total)
                place = _FLOAT * number * self._columns + _VECTOR * index
                offsets = place, _VECTOR * index, _FLOAT * number
                is_part = lanes and index == len(row) - 1 and not is_last
                if not is_part:
                    f.get(self._place)
                _express(f, self._functions, self._expression, self._at, *offsets, made=total)
                if is_part:
                    f.set(total)
                    _store_lanes(f, self._place, total, self._out + place, lanes)
                else:
                    f.memory("v128.store", self._out + place)


def _store_lanes(f: FunctionCode, place: int, vector: int, address: int, count: int) -> None:
    """Store the first one, two or three elements of a vector."""
    if count > 1:
        f.get(place, vector)
        f.store_lane("v128.store64_lane", address, 0)
    if count % 2:
        f.get(place, vector)
        f.store_lane("v128.store32_lane", address + _FLOAT * (count - 1), count - 1)


def _copy(f: FunctionCode, source: int, out: int, count: int) -> None:
    """Copy elements that lie side by side."""
    whole, rest = divmod(count, _FLOAT)
    if whole:
        place = f.local(I32)
        f.i32(0)
        f.set(place)
        with f.loop(whole, (place, _VECTOR)):
            f.get(place, place)
            f.memory("v128.load", source)
            f.memory("v128.store", out)
        f.release(place)
    for index in range(count - rest, count):
        f.i32(0)
        f.i32(0)
        f.memory("i32.load", source + _FLOAT * index)
        f.memory("i32.store", out + _FLOAT * index)


def _held_inside(f: FunctionCode, number: int, size: int) -> None:
    """Count a negative number from the end, and hold it between 0 and `size` - 1."""
    f.get(number)
    f.i32(size)
    f.op("i32.add")
    f.get(number, number)
    f.i32(0)
    f.op("i32.lt_s", "select")
    f.set(number)
    for bound, comparison in ((0, "i32.ge_s"), (size - 1, "i32.lt_s")):
        f.get(number)
        f.i32(bound)
        f.get(number)
        f.i32(bound)
        f.op(comparison, "select")
        f.set(number)
