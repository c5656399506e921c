"""The plan of a kernel: its stages in order, with the values kept in registers in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from arkml.policies.kernel.graph import (
    Arranged,
    Constant,
    Given,
    Pattern,
    Picked,
    Pointwise,
    Product,
    Ranked,
    Reduced,
    Value,
    View,
    pattern_of,
)

_MOST_OPERATIONS = 48
"""Operations that are made on an element before it is stored."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """An expression: an element of a value in memory."""

    value: Value
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class Operated:
    """An expression: an operation on the results of other expressions."""

    operation: str
    sources: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """An expression: an element of the matrix product in whose loops it is computed."""


Expression: TypeAlias = Loaded | Operated | Made


@dataclass(frozen=True, slots=True)
class Stage:
    """
    One stage of a kernel, which stores `value`.

    `expression`, [rows, width], gives the elements, computed in the loops of `product` if that is
    given. A stage without an expression computes a value that is not a Pointwise.
    """

    value: Value
    expression: Expression | None = None
    width: int = 0
    product: Product | None = None


def base(value: Value) -> tuple[Value, int]:
    """Return the value in whose memory a value lies, and the index of its first element there."""
    return (value.source, value.start) if isinstance(value, View) else (value, 0)


def sources_of(value: Value) -> tuple[Value, ...]:
    """Return the values that a value is computed from."""
    match value:
        case Pointwise(sources=sources) | Arranged(sources=sources):
            return sources
        case View(source=source) | Reduced(source=source) | Ranked(source=source):
            return (source,)
        case Product(left=left, right=right):
            return left, right
        case Picked(source=source, numbers=numbers):
            return source, numbers
        case _:
            return ()


def plan(outputs: Sequence[Value]) -> list[Stage]:
    """Return the stages that compute the outputs, in order."""
    order = list(ordered(outputs))
    uses = Counter(id(source) for value in order for source in sources_of(value))
    uses.update(id(value) for value in outputs)
    stored = {id(base(value)[0]) for value in outputs}
    stages = []
    for value in reversed(order):
        if id(value) not in stored or isinstance(value, Given | Constant | View):
            continue
        stage = _Tree(uses).stage(value)
        stages.append(stage)
        stored.update(id(base(source)[0]) for source in _read(stage))
    return stages[::-1]


def _read(stage: Stage) -> Iterator[Value]:
    """Yield the values in memory that a stage reads."""
    if stage.expression is None:
        yield from sources_of(stage.value)
        return
    if stage.product is not None:
        yield from sources_of(stage.product)
    todo = [stage.expression]
    while todo:
        match todo.pop():
            case Loaded(value=value):
                yield value
            case Operated(sources=sources):
                todo += sources
            case Made():
                pass


def ordered(outputs: Sequence[Value]) -> Iterator[Value]:
    """Yield all values that outputs need, each after its own sources."""
    seen: set[int] = set()
    todo: list[tuple[Value, bool]] = [(value, False) for value in reversed(outputs)]
    while todo:
        value, is_done = todo.pop()
        if is_done:
            yield value
        elif id(value) not in seen:
            seen.add(id(value))
            todo.append((value, True))
            todo += [(source, False) for source in reversed(sources_of(value))]


class _Tree:
    """The expression of one stage."""

    def __init__(self, uses: Counter[int]) -> None:
        self._uses = uses
        self._width = 0  # of rows, 0 while no source of rows or columns is met
        self._product: Product | None = None
        self._operations = 0

    def stage(self, value: Value) -> Stage:
        if isinstance(value, Product):
            return Stage(value, Made(), value.shape[-1], value)
        if not isinstance(value, Pointwise):
            return Stage(value)
        expression = self._operated(value)
        return Stage(value, expression, self._width or value.count, self._product)

    def _operated(self, value: Pointwise) -> Expression:
        self._operations += 1
        patterns = [pattern_of(source.shape, value.shape) for source in value.sources]
        self._width = max([self._width, *(width for _, width in patterns)])  # they are of one width
        sources = [
            self._source(source, pattern)
            for source, (pattern, _) in zip(value.sources, patterns, strict=True)
        ]
        return Operated(value.operation, tuple(sources))

    def _source(self, source: Value, pattern: Pattern) -> Expression:
        inner, is_alone = source, self._uses[id(source)] == 1
        if isinstance(source, View) and source.count == source.source.count:
            inner = source.source
            is_alone = is_alone and self._uses[id(inner)] == 1
        if pattern is not Pattern.EACH or not is_alone:
            return Loaded(source, pattern)
        if isinstance(inner, Product) and self._fits(inner):
            self._product, self._width = inner, inner.shape[-1]
            return Made()
        if isinstance(inner, Pointwise) and self._takes(inner):
            return self._operated(inner)
        return Loaded(source, pattern)

    def _fits(self, product: Product) -> bool:
        return self._product is None and self._width in (0, product.shape[-1])

    def _takes(self, value: Pointwise) -> bool:
        """Return whether the computation of a value continues in the same loops."""
        widths = {pattern_of(one.shape, value.shape)[1] for one in value.sources} - {0}
        fits = not widths or not self._width or widths == {self._width}
        return fits and self._operations < _MOST_OPERATIONS
