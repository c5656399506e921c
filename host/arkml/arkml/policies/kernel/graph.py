"""The values that a kernel computes for one row, as a graph without loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from arkml.errors import ModelRejected

Shape: TypeAlias = tuple[int, ...]
Places: TypeAlias = npt.NDArray[np.int64]
"""The elements of sources that the elements of a value are, counted through all sources."""

MOST_PLACES = 1 << 22
"""Most elements of one value that is moved: its table has four bytes for each."""

ZERO = -1
"""A place that is no element of a source, and holds 0."""


class NumberKind(Enum):
    """The element types of values; as a bool, true has all bits set and false none."""

    FLOAT = "float32"
    INTEGER = "int32"
    BOOLEAN = "bool"


class Pattern(Enum):
    """How the elements of an operand are broadcast to the rows of a result."""

    EACH = "each"
    ONE = "one"
    OF_COLUMN = "of column"
    OF_ROW = "of row"
    OTHER = "other"


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor that a kernel computes for one row, contiguous, with four bytes for each element."""

    shape: Shape
    kind: NumberKind

    @property
    def count(self) -> int:
        """Number of elements."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Given(Value):
    """An input of the model, as a value of the graph."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Value):
    """Numbers stored in the file: float32, or int32 for other kinds, [*shape]."""

    numbers: npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Pointwise(Value):
    """
    An elementwise operation on source values, which are broadcast.

    It is one of `pointwise.OPERATIONS` or `functions.KNOWN`.
    """

    operation: str
    sources: tuple[Value, ...]


@dataclass(frozen=True, slots=True, eq=False)
class View(Value):
    """Contiguous elements of a source value, from element `start` on."""

    source: Value
    start: int


@dataclass(frozen=True, slots=True, eq=False)
class Arranged(Value):
    """Elements of source values in another order. places: int64, [*shape], their indices."""

    sources: tuple[Value, ...]
    places: Places


@dataclass(frozen=True, slots=True, eq=False)
class Product(Value):
    """
    A product of matrices.

    left: [batch, rows, inner]. right: [batch, inner, columns], or [1, inner, columns] for all.
    """

    left: Value
    right: Value


@dataclass(frozen=True, slots=True, eq=False)
class Reduced(Value):
    """The sum, maximum or minimum over the last dimension of a source value, which is dropped."""

    operation: str
    source: Value


@dataclass(frozen=True, slots=True, eq=False)
class Ranked(Value):
    """
    The index of the highest element in the last dimension of a source value, which is dropped.

    Of equal elements it is the first one, or the last one.
    """

    source: Value
    is_last: bool


@dataclass(frozen=True, slots=True, eq=False)
class Picked(Value):
    """
    Blocks of a source value, picked by indices that are known only in a run.

    source: [outer, blocks, inner]. numbers: integers, [picks]; negative ones count from the end,
    and indices out of range are clipped. Shape: [outer, picks, inner].
    """

    source: Value
    numbers: Value


def constant(numbers: Any) -> Constant:
    """
    Return a constant value of the graph for a numpy array or number.

    Raises ModelRejected for unknown dtypes.
    """
    array = np.asarray(numbers)
    if array.dtype == np.bool_:
        return Constant(array.shape, NumberKind.BOOLEAN, -array.astype(np.int32))
    if array.dtype in (np.int64, np.int32):
        return Constant(
            array.shape, NumberKind.INTEGER, np.clip(array, -(2**31), 2**31 - 1).astype("i4")
        )
    if array.dtype != np.float32:
        raise ModelRejected(f"numbers of {array.dtype}")
    return Constant(array.shape, NumberKind.FLOAT, array)


def number(value: float) -> Constant:
    """Return a constant value of one float32."""
    return constant(np.float32(value))


def pointwise(operation: str, *sources: Value, kind: NumberKind = NumberKind.FLOAT) -> Value:
    """Return an elementwise operation on sources whose shapes are broadcast."""
    shape = tuple(np.broadcast_shapes(*(source.shape for source in sources)))
    width, fitting = 0, []
    for source in sources:
        pattern, own = pattern_of(source.shape, shape)
        is_other = pattern is Pattern.OTHER or (own and width and own != width)
        width = width if is_other else width or own
        fitting.append(expanded(source, shape) if is_other else source)
    return Pointwise(shape, kind, operation, tuple(fitting))


def pattern_of(source: Shape, shape: Shape) -> tuple[Pattern, int]:
    """Return how a source shape is broadcast to a shape, and the width of its rows, or 0."""
    count = prod(shape)
    if prod(source) == count:
        return Pattern.EACH, 0
    if prod(source) == 1:
        return Pattern.ONE, 0
    wide = (1,) * (len(shape) - len(source)) + source
    differing = [axis for axis, sizes in enumerate(zip(wide, shape, strict=True))
                 if sizes[0] != sizes[1]]  # fmt: skip
    first, last = differing[0], differing[-1]
    if prod(wide[: last + 1]) == 1:
        return Pattern.OF_COLUMN, prod(shape[last + 1 :])
    if prod(wide[first:]) == 1:
        return Pattern.OF_ROW, prod(shape[first:])
    return Pattern.OTHER, 0


def reshaped(source: Value, shape: Shape) -> Value:
    """Return a value in another shape with the same number of elements. Raises ModelRejected."""
    if source.shape == shape:
        return source
    if source.count != prod(shape):
        raise ModelRejected(f"{list(source.shape)} has not the size of {list(shape)}")
    if isinstance(source, Constant):
        return Constant(shape, source.kind, source.numbers.reshape(shape))
    start = 0
    if isinstance(source, View):
        start, source = source.start, source.source
    return View(shape, source.kind, source, start)


def places_of(source: Value) -> Places:
    """Return the index of each element of a value: int64, [*shape]."""
    require_places(source.count)
    return np.arange(source.count, dtype=np.int64).reshape(source.shape)


def require_places(count: int) -> None:
    """Raise ModelRejected for more elements than a kernel may rearrange."""
    if count > MOST_PLACES:
        raise ModelRejected(f"{count} elements are moved, {MOST_PLACES} at most may be")


def moved(sources: Sequence[Value], places: Places) -> Value:
    """
    Return a value made of elements of sources in another order.

    places: int64, [*shape], the index of each element among the elements of all sources. Contiguous
    elements give a view, elements of constants a constant.
    """
    require_places(places.size)
    shape, kind = places.shape, sources[0].kind
    if all(isinstance(source, Constant) for source in sources):
        numbers = [source.numbers.ravel() for source in sources if isinstance(source, Constant)]
        joined = np.append(np.concatenate(numbers), np.zeros(1, numbers[0].dtype))
        return Constant(shape, kind, joined[places])  # ZERO is the last one
    if len(sources) == 1:
        source, places = _origin(sources[0], places)
        sources = [source]
        flat = places.ravel()
        if flat.size and flat[0] >= 0 and np.array_equal(flat, flat[0] + np.arange(flat.size)):
            if flat.size == source.count and shape == source.shape:
                return source
            return View(shape, kind, source, int(flat[0]))
    return Arranged(shape, kind, tuple(sources), places)


def _origin(source: Value, places: Places) -> tuple[Value, Places]:
    """Return the value whose elements a source shows, and the places there."""
    while True:
        if isinstance(source, View):
            places = np.where(places == ZERO, ZERO, places + source.start)
            source = source.source
        elif isinstance(source, Arranged) and len(source.sources) == 1:
            places = np.append(source.places.ravel(), ZERO)[places]
            source = source.sources[0]
        else:
            return source, places


def expanded(source: Value, shape: Shape) -> Value:
    """Return a value broadcast to a shape."""
    if source.count == prod(shape):
        return reshaped(source, shape)
    require_places(prod(shape))
    return moved([source], np.broadcast_to(places_of(source), shape))


def transposed(source: Value, order: Sequence[int]) -> Value:
    """Return a value with its dimensions in another order."""
    return moved([source], places_of(source).transpose(order))


def joined(sources: Sequence[Value], axis: int) -> Value:
    """Return values concatenated along an axis."""
    if len(sources) == 1:
        return sources[0]
    starts = np.cumsum([0, *(source.count for source in sources)])
    parts = [places_of(one) + start for one, start in zip(sources, starts[:-1], strict=True)]
    return moved(sources, np.concatenate(parts, axis=axis))


def product(left: Value, right: Value) -> Value:
    """Return the product of matrices by the rules of numpy's matmul. Raises ModelRejected."""
    a, b = left.shape, right.shape
    a, b = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    batch = tuple(np.broadcast_shapes(a[:-2], b[:-2]))
    rows, inner, columns = a[-2], a[-1], b[-1]
    shape = batch + ((rows,) if len(left.shape) > 1 else ())
    shape += (columns,) if len(right.shape) > 1 else ()
    count = prod(batch)
    if prod(b[:-2]) == 1:  # the rows of all of them, by one matrix
        left = reshaped(
            expanded(reshaped(left, a), (*batch, rows, inner)), (1, count * rows, inner)
        )
        right = reshaped(right, (1, inner, columns))
    else:
        left = reshaped(expanded(reshaped(left, a), (*batch, rows, inner)), (count, rows, inner))
        right = expanded(reshaped(right, b), (*batch, inner, columns))
        right = reshaped(right, (count, inner, columns))
    made = Product((*left.shape[:2], columns), NumberKind.FLOAT, left, right)
    return reshaped(made, shape)


def reduced(operation: str, source: Value, axes: Sequence[int], *, keeps: bool) -> Value:
    """Return the "add", "max" or "min" of a value along axes, which become 1 if `keeps`, or go."""
    left, rows = _rows_along(source, axes)
    found = Reduced(rows.shape[:-1], source.kind, operation, rows)
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(source.shape))
    return reshaped(found, kept if keeps else left)


def highest_place(source: Value, axis: int, *, keeps: bool, is_last: bool) -> Value:
    """
    Return the index of the highest element along an axis: of equal ones the first, or the last.
    """
    left, rows = _rows_along(source, [axis])
    found = Ranked(rows.shape[:-1], NumberKind.INTEGER, rows, is_last)
    kept = (*source.shape[:axis], 1, *source.shape[axis + 1 :])
    return reshaped(found, kept if keeps else left)


def _rows_along(source: Value, axes: Sequence[int]) -> tuple[Shape, Value]:
    """Return the shape without axes, and a source of two dimensions with the axes as its last."""
    others = [axis for axis in range(len(source.shape)) if axis not in axes]
    left = tuple(source.shape[axis] for axis in others)
    last = prod(source.shape[axis] for axis in axes)
    ordered = transposed(source, [*others, *axes])
    return left, reshaped(ordered, (prod(left), last))
