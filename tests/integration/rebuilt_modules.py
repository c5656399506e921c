"""Modules as a compiler rebuilds them: with other code, with other data, and with a trap."""

from __future__ import annotations

from arkml.runtime.module.binary import SectionId
from arkml.runtime.module.parsing import parse

BROKEN = b"\0asm no module"


def with_a_note(module: bytes) -> bytes:
    """Return the module with another custom section, and so with another digest."""
    return module + b"\0\x05\x04note"


def with_a_trap(module: bytes, function: str = "ark_applet_update") -> bytes:
    """Return the module with a function that traps at once."""
    binary = parse(module)
    index = next(export.index for export in binary.exports if export.name == function)
    place = binary.bodies.exported[index].start
    begin = place + 1 + 2 * module[place]  # behind the groups of its locals, of two bytes each
    return module[:begin] + b"\0" + module[begin + 1 :]


def with_a_trap_unless(module: bytes, bit: int) -> bytes:
    """Return the module with an `arkml_seed` that traps unless the seed has one of bits 0 to 5."""
    binary = parse(module)
    index = next(export.index for export in binary.exports if export.name == "arkml_seed")
    place = binary.bodies.exported[index]
    # local.get 0, i64.const, i64.and, i64.eqz, if, unreachable, end
    body = b"\0\x20\0\x42" + bytes((1 << bit,)) + b"\x83\x50\x04\x40\0\x0b"
    padding = place.stop - place.start - len(body) - 1
    return module[: place.start] + body + b"\1" * padding + b"\x0b" + module[place.stop :]


def with_other_data(module: bytes) -> bytes:
    """Return the module with one bit changed in the last byte of its data."""
    data = parse(module).section(SectionId.DATA)
    assert data is not None
    last = data.end - 1
    return module[:last] + bytes((module[last] ^ 1,)) + module[data.end :]
