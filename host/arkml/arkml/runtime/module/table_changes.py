"""Changes that the code of a module can make to its tables after instantiation."""

from __future__ import annotations

import re
from functools import cache

from arkml.runtime.module.binary import Binary, ExternKind, SectionId
from arkml.runtime.module.body_bounds import bodies
from arkml.runtime.module.constants import constant, reference
from arkml.runtime.module.wasm_reader import Reader
from arkml.runtime.module.wasm_types import value_type

_NUMBER = rb"(?:[\x80-\xff]*+[\x00-\x7f])"
_ALIGNMENT = rb"(?:[\x00-\x3f]|[\x80-\xbf]N|(?:[\x40-\x7f]|[\xc0-\xff]N)N)"  # bit 6: a memory
_BR_TABLE = 0x0E
_MAX_SEGMENTS, _MAX_ELEMENTS = 1_000_000, 10_000_000  # as many as wasmtime takes
_KEEPING = (
    rb"(?:[\x20-\x25\x3f\x41\x42\xd0\xd2\x02-\x04\x0c\x0d\x10\x12\x40]N"
    rb"|[\x11\x13]NN"
    rb"|[\x00\x01\x05\x0b\x0f\x1a\x1b\x45-\xc4\xd1]"
    rb"|[\x28-\x3e]AN"
    rb"|\x43.{4}|\x44.{8}"
    rb"|\x1c\x01."
    rb"|\xfc(?:[\x00-\x07]|[\x09\x0b\x0d\x10]N|[\x08\x0a]NN)"
    rb"|\xfd(?:[\x00-\x0b\x5c\x5d]AN|[\x0c\x0d].{16}|[\x15-\x22].|[\x54-\x5b]AN."
    rb"|[\x0e-\x14\x23-\x53\x5e-\x7f]|[\x80-\xff][\x01\x02])"
    rb"|\xfe(?:\x03.|[\x00-\x02\x10-\x7f]AN)"
    rb")*+"
)
"""Instructions that change no table, but for `br_table`. A: an alignment, N: a number."""


@cache
def _keeping() -> re.Pattern[bytes]:
    pattern = _KEEPING.replace(b"A", _ALIGNMENT).replace(b"N", _NUMBER)
    return re.compile(pattern, re.DOTALL)


def keeps_tables(binary: Binary) -> bool:
    """
    Return whether no instruction of the module changes a table (set, grow, fill, copy or init).

    The result is also False for a module with instructions that this reader does not know.
    """
    if not binary.tables:
        return True
    places, data = bodies(binary), binary.data
    spans = zip(places.starts.tolist(), places.ends.tolist(), strict=True)
    return all(_body_keeps(data, start, end) for start, end in spans)


def _body_keeps(data: bytes, start: int, end: int) -> bool:
    match, position = _keeping().match, start
    while True:
        found = match(data, position, end)
        assert found is not None  # it matches nothing as well
        position = found.end()
        if position == end:
            return True
        if data[position] != _BR_TABLE:
            return False
        reader = Reader(data, position + 1, end, "a function body")
        for _ in range(reader.u32() + 1):
            reader.u32()
        position = reader.position


def functions_of_tables(binary: Binary) -> frozenset[int]:
    """
    Return the indices of functions that tables may hold: exported ones, and those in segments.

    Instructions can take the address of no other function, except one that only a global holds.
    Raises ModuleRejected.
    """
    found = {each.index for each in binary.exports if each.kind is ExternKind.FUNCTION}
    section = binary.section(SectionId.ELEMENT)
    if section is not None:
        reader = Reader(binary.data, section.payload, section.end, "the element section")
        for _ in range(reader.count(_MAX_SEGMENTS, "element segments")):
            found.update(_segment(reader))
    return frozenset(found)


def _segment(reader: Reader) -> list[int]:
    """Read an element segment, and return its functions."""
    flags = reader.u32()  # bit 0: passive or declared; bit 1: a table or a kind; bit 2: expressions
    if flags > 0b111:
        raise reader.rejected(f"{flags} is not a kind of element segment")
    if not flags & 1:
        if flags & 2:
            reader.u32()
        constant(reader)
    if flags & 3:
        if flags & 4:
            value_type(reader)
        else:
            reader.byte()
    read = reference if flags & 4 else Reader.u32
    found = [read(reader) for _ in range(reader.count(_MAX_ELEMENTS, "elements"))]
    return [index for index in found if index is not None]
