"""The control flow of a function body, as far as the cost of compiling it depends on it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from arkml.errors import ModuleRejected
from arkml.runtime.module.wasm_reader import Reader

_NUMBER = rb"[\x80-\xff]*+[\x00-\x7f]"
_ALIGNMENT = rb"(?:[\x00-\x3f]|[\x80-\xbf]N|(?:[\x40-\x7f]|[\xc0-\xff]N)N)"  # bit 6: a memory
_ADDRESS = _ALIGNMENT + rb"N"


_CONTROL = (
    rb"(?:[\x20-\x26\x3f\x41\x42\xd0\xd2]N"
    rb"|[\x00\x01\x0f\x1a\x1b\x45-\xc4\xd1]"
    rb"|[\x28-\x3e]A"
    rb"|\x43.{4}|\x44.{8}"
    rb"|\x1c\x01."
    rb"|\xfc(?:[\x00-\x07]|[\x09\x0b\x0d\x10\x11]N|[\x08\x0a\x0c\x0e]NN)"
    rb"|\xfd(?:[\x00-\x0b\x5c\x5d]A|[\x0c\x0d].{16}|[\x15-\x22].|[\x54-\x5b]A."
    rb"|[\x0e-\x14\x23-\x53\x5e-\x7f]|[\x80-\xff][\x01\x02])"
    rb"|\xfe(?:\x03.|[\x00-\x02\x10-\x7f]A)"
    rb")*+([\x02-\x05\x0b-\x0e\x10-\x13\x40\xfc])"
)
"""
Instructions without influence on the control flow, and the first byte of one with influence.

A stands for the immediates of a memory access, N for a number.
"""


@cache
def _control() -> re.Pattern[bytes]:
    """Return the pattern, which takes milliseconds to compile and is rarely needed."""
    return re.compile(_CONTROL.replace(b"A", _ADDRESS).replace(b"N", _NUMBER), re.DOTALL)


_TABLE_GROW = 0x0F  # after 0xfc
_EMPTY, _FIRST_VALUE_TYPE = 0x40, 0x65
_REFERENCE_TYPES = (0x63, 0x64)
_CONTINUES = 0x80
REGISTERS = 8  # parameters and results of a call that cost nothing of note


@dataclass(slots=True)
class ControlFlow:
    """
    Counts of the control flow of one function body.

    Attributes:
        merges: Sum, over all blocks, of the square of the number of branches to the block.
        table_merges: Sum, over branch tables and their targets, of the square of the number of
            entries with that target.
        edges: Number of branches and of entries of branch tables.
        loop_branches: Branches to loops.
        block_values: Number of parameters and results of all blocks.
        call_values: Number of parameters and results of calls that exceed 8, the registers.
        depth: The deepest nesting of loops.
        squared_depths: Sum, over outermost loops, of the square of the depth of nesting in each.
        growths: Instructions that grow a memory or a table.

    """

    merges: int = 0
    table_merges: int = 0
    edges: int = 0
    blocks: int = 0
    block_values: int = 0
    depth: int = 0
    squared_depths: int = 0
    indirect_calls: int = 0
    growths: int = 0
    call_values: int = 0
    loop_branches: int = 0


class _Unknown(Exception):
    """An instruction that this reader does not know."""


def control_flow(
    data: bytes, start: int, end: int, type_values: Sequence[int], function_values: Sequence[int]
) -> ControlFlow | None:
    """
    Return the counts of the instructions in `data[start:end]`, None if one is unknown.

    `type_values` and `function_values` hold the number of parameters and results of each type and
    function. For invalid bytes the result is meaningless; the compiler refuses them.
    """
    reader = Reader(data, start, end, "a function body")
    body = _Body(reader, type_values, function_values)
    match = _control().match
    try:
        while body.labels:
            following = match(data, reader.position, end)
            if following is None:
                return None
            reader.position = following.end()
            _COUNT[data[reader.position - 1]](body)
    except (_Unknown, IndexError, ModuleRejected):
        return None
    return body.flow


class _Body:
    """The blocks that are open at one place of a body, with the branches to each so far."""

    def __init__(
        self, reader: Reader, type_values: Sequence[int], function_values: Sequence[int]
    ) -> None:
        self._reader = reader
        self._type_values = type_values
        self._function_values = function_values
        self._loops = 0
        self._deepest = 0  # loops in the present outermost one
        self.labels: list[list[int]] = [[False, 0]]  # whether it is a loop, branches to it
        self.flow = ControlFlow()

    def block(self) -> None:
        reader, flow = self._reader, self.flow
        first = reader.peek()
        if first == _EMPTY or _FIRST_VALUE_TYPE <= first < _CONTINUES:
            reader.byte()
        elif first in _REFERENCE_TYPES:
            reader.byte()
            reader.s33()
        else:
            flow.block_values += self._type_values[reader.u32()]
        flow.blocks += 1
        self.labels.append([False, 0])

    def loop(self) -> None:
        self.block()
        self.labels[-1][0] = True
        self._loops += 1
        self._deepest = max(self._deepest, self._loops)
        self.flow.depth = max(self.flow.depth, self._loops)

    def alternative(self) -> None:
        """Count nothing: an `else` is part of its `if`."""

    def end(self) -> None:
        is_loop, branches = self.labels.pop()
        self.flow.merges += branches * branches
        self._loops -= is_loop
        if not self._loops:
            self.flow.squared_depths += self._deepest * self._deepest
            self._deepest = 0
        self.flow.loop_branches += is_loop * branches

    def branch(self) -> None:
        self._branch(self._reader.u32())

    def branch_table(self) -> None:
        reader = self._reader
        entries = reader.count(reader.end, "targets")
        targets = Counter([reader.u32() for _ in range(entries + 1)])
        for label, number in targets.items():
            self._branch(label)
            self.flow.table_merges += number * number
        self.flow.edges += entries + 1 - len(targets)

    def call(self) -> None:
        self._values(self._function_values[self._reader.u32()])

    def call_indirect(self) -> None:
        self._values(self._type_values[self._reader.u32()])
        self._reader.u32()
        self.flow.indirect_calls += 1

    def memory_grow(self) -> None:
        self._reader.u32()
        self.flow.growths += 1

    def table_grow(self) -> None:
        if self._reader.u32() != _TABLE_GROW:
            raise _Unknown
        self.memory_grow()

    def _branch(self, label: int) -> None:
        if label >= len(self.labels):
            raise _Unknown
        self.labels[-1 - label][1] += 1
        self.flow.edges += 1

    def _values(self, values: int) -> None:
        self.flow.call_values += max(0, values - REGISTERS)


_COUNT: dict[int, Callable[[_Body], None]] = {
    0x02: _Body.block,
    0x03: _Body.loop,
    0x04: _Body.block,  # if
    0x05: _Body.alternative,
    0x0B: _Body.end,
    0x0C: _Body.branch,
    0x0D: _Body.branch,  # br_if
    0x0E: _Body.branch_table,
    0x10: _Body.call,
    0x11: _Body.call_indirect,
    0x12: _Body.call,  # return_call
    0x13: _Body.call_indirect,  # return_call_indirect
    0x40: _Body.memory_grow,
    0xFC: _Body.table_grow,
}
