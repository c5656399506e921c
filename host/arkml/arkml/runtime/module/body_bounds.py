"""Upper bounds for the control flow of all function bodies of a module, from their bytes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from arkml.runtime.module.binary import Binary, SectionId
from arkml.runtime.module.control_flow import REGISTERS, ControlFlow
from arkml.runtime.module.wasm_types import FunctionType

_USE = 4  # bytes of code that read a local and write it

Numbers: TypeAlias = Any
"""A number, or an array with one number for each body."""


@dataclass(frozen=True, slots=True)
class FlowCounts:
    """Counts of control flow, of one function body or of all; `ControlFlow` explains them."""

    merges: Numbers
    table_merges: Numbers
    edges: Numbers
    blocks: Numbers
    block_values: Numbers
    depth: Numbers
    squared_depths: Numbers
    indirect_calls: Numbers
    growths: Numbers
    call_values: Numbers
    loop_branches: Numbers

    @classmethod
    def of(cls, flow: ControlFlow) -> FlowCounts:
        return cls(*(getattr(flow, name) for name in cls.__slots__))


@dataclass(frozen=True, slots=True)
class BodyPlaces:
    """The byte ranges of function bodies, with numbers of locals, parameters and values in use."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    locals: NDArray[np.int64]
    used: NDArray[np.int64]

    def part(self, chosen: slice) -> BodyPlaces:
        """Return the data of some of the bodies."""
        return BodyPlaces(*(getattr(self, name)[chosen] for name in self.__slots__))


def _number(data: bytes, position: int) -> tuple[int, int]:
    """Return an unsigned LEB128 number, and the position after it."""
    value = shift = 0
    while (byte := data[position]) >= 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        position += 1
    return value | byte << shift, position + 1


def bodies(binary: Binary) -> BodyPlaces:
    data, section = binary.data, binary.section(SectionId.CODE)
    starts: list[int] = []
    ends: list[int] = []
    declared: list[int] = []
    if section is not None:
        count, position = _number(data, section.payload)
        for function in binary.functions[len(binary.functions) - count :]:
            size, position = _number(data, position)
            end = position + size
            locals_ = len(function.params)
            if size > 2 and data[position]:  # there are groups of locals
                position, locals_ = _locals(data, position, end, locals_)
            starts.append(position)
            ends.append(end)
            declared.append(locals_)
            position = end
    places = [np.array(values, np.int64) for values in (starts, ends, declared)]
    begin, finish, counts = places
    return BodyPlaces(begin, finish, counts, np.minimum(counts, (finish - begin) // _USE))


def _locals(data: bytes, position: int, end: int, locals_: int) -> tuple[int, int]:
    """Return the position after the declarations of locals, and their number."""
    groups, position = _number(data, position)
    for _ in range(groups):
        if position >= end:
            break
        number, position = _number(data, position)
        reference = data[position] in (0x63, 0x64)
        position = _number(data, position + 1)[1] if reference else position + 1
        locals_ += number
    return min(position, end), locals_


def values(kind: FunctionType | None) -> int:
    """Return the number of parameters and results of a type."""
    return 0 if kind is None else len(kind.params) + len(kind.results)


_BLOCK, _LOOP, _BRANCH, _TABLE, _CALL, _INDIRECT, _GROW, _PREFIX = range(1, 9)
_CLASSES = np.zeros(256, np.uint8)
for _class, _operators in {
    _BLOCK: [0x02, 0x04],
    _LOOP: [0x03],
    _BRANCH: [0x0C, 0x0D],
    _TABLE: [0x0E],
    _CALL: [0x10, 0x12],
    _INDIRECT: [0x11, 0x13],
    _GROW: [0x40],
    _PREFIX: [0xFC],
}.items():
    _CLASSES[_operators] = _class
_EMPTY, _FIRST_VALUE_TYPE = 0x40, 0x63
_TABLE_GROW = 0x0F  # after 0xfc
_LONGEST = 5  # bytes of a number of 32 bits
_PIECE = 1 << 20  # bytes of code that are looked at together: 60 bytes of memory for each


def bounds(
    binary: Binary, places: BodyPlaces, type_values: list[int], function_values: list[int]
) -> FlowCounts:
    """
    Return upper bounds for the control flow of all function bodies.

    Each byte that could be an operator, such as 0x03 for `loop`, is counted as one if the bytes
    after it could be its immediates, although it may be part of another instruction.
    """
    edges = np.arange(_PIECE, len(binary.data), _PIECE)
    cuts = [0, *np.unique(np.searchsorted(places.starts, edges)).tolist(), len(places.starts)]
    pieces = [
        _piece(binary, places.part(slice(begin, end)), type_values, function_values)
        for begin, end in itertools.pairwise(cuts)
    ]
    return FlowCounts(
        *(np.concatenate([getattr(one, name) for one in pieces]) for name in FlowCounts.__slots__)
    )


def _piece(
    binary: Binary, places: BodyPlaces, type_values: list[int], function_values: list[int]
) -> FlowCounts:
    """Return the bounds of bodies that follow one another."""
    bodies = len(places.starts)
    first = int(places.starts[0]) if bodies else 0
    last = int(places.ends[-1]) if bodies else 0
    code = np.frombuffer(binary.data, np.uint8)[first:last]
    kinds = _CLASSES[code]
    at = np.flatnonzero(kinds)
    kind = kinds[at]
    code = np.append(code, np.zeros(_LONGEST + 2, np.uint8))
    following = code[at + 1]
    number, after = _numbers(code, at + 1)
    body = np.searchsorted(places.starts - first, at, "right") - 1

    def total(chosen: Numbers, weights: Numbers = None) -> Numbers:
        each = None if weights is None else weights[chosen]
        return np.bincount(body[chosen], each, bodies).astype(np.float64)

    is_block = (kind == _BLOCK) | (kind == _LOOP)
    has_type = (following < _EMPTY) | (following >= 0x80)
    has_type &= number < len(type_values)
    is_block &= has_type | (following == _EMPTY) | (following >= _FIRST_VALUE_TYPE)
    is_indirect = (kind == _INDIRECT) & (number < len(type_values))
    is_indirect &= (code[after] < max(1, len(binary.tables))) | (code[after] >= 0x80)
    is_call = (kind == _CALL) & (number < len(function_values))
    grows = (kind == _GROW) & ((following == 0) | (following == 0x80))
    grows |= (kind == _PREFIX) & (following & 0x7F == _TABLE_GROW)
    taken = _looked_up(type_values, number)
    passed = np.where(is_call, _looked_up(function_values, number), taken)
    entries = np.maximum(0, np.minimum(number + 1, places.ends[body] - first - at))
    branches = total(kind == _BRANCH)
    edges = branches + total(kind == _TABLE, entries)
    loops = total(is_block & (kind == _LOOP))
    return FlowCounts(
        merges=edges * (branches + total(kind == _TABLE)),  # a table branches once to each target
        table_merges=total(kind == _TABLE, entries.astype(np.float64) ** 2),
        edges=edges,
        loop_branches=edges,
        blocks=total(is_block),
        block_values=total(is_block & has_type, taken),
        depth=loops,
        squared_depths=loops * loops,
        indirect_calls=total(is_indirect),
        growths=total(grows),
        call_values=total(is_call | is_indirect, np.maximum(0, passed - REGISTERS)),
    )


def _looked_up(numbers: list[int], index: NDArray[np.int64]) -> NDArray[np.int64]:
    table = np.array([*numbers, 0], np.int64)
    return table[np.minimum(index, len(numbers))]


def _numbers(
    code: NDArray[np.uint8], at: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number at each position, and the position after it."""
    number = (code[at] & 0x7F).astype(np.int64)
    after = at + 1
    longer = np.flatnonzero(code[at] >= 0x80)
    for shift in range(7, 7 * _LONGEST, 7):
        byte = code[after[longer]]
        number[longer] |= (byte & 0x7F).astype(np.int64) << shift
        after[longer] += 1
        longer = longer[byte >= 0x80]
    return number, after
