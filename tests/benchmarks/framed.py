"""The guest of the benchmarks with a frame that takes and returns nothing, as an applet has it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from arkml.runtime.module.binary import HEADER, ExternKind, SectionId
from arkml.runtime.module.parsing import parse
from arkml.runtime.module.wasm_reader import Reader, named, unsigned

UPDATE = "ark_applet_update"
_NOTHING = bytes((0x60, 0, 0))  # the type () -> ()
_CALL, _DROP, _END = 0x10, 0x1A, 0x0B


@cache
def framed(path: Path) -> bytes:
    """Return the module with an export that calls its `frame` and drops the result."""
    data = path.read_bytes()
    binary = parse(data)
    frame = next(export.index for export in binary.exports if export.name == "frame")
    types = binary.section(SectionId.TYPE)
    assert types is not None
    new_type = Reader(data, types.payload, types.end, "type section").u32()
    body = bytes((0, _CALL)) + unsigned(frame) + bytes((_DROP, _END))
    added = {
        SectionId.TYPE: _NOTHING,
        SectionId.FUNCTION: unsigned(new_type),
        SectionId.EXPORT: named(UPDATE) + bytes((ExternKind.FUNCTION.value,))
        + unsigned(len(binary.functions)),
        SectionId.CODE: unsigned(len(body)) + body,
    }  # fmt: skip
    sections = [HEADER]
    for section in binary.sections:
        item = added.get(section.id)
        if item is None:
            sections.append(data[section.start : section.end])
            continue
        reader = Reader(data, section.payload, section.end, "section")
        count = reader.u32()
        payload = unsigned(count + 1) + data[reader.position : section.end] + item
        sections.append(bytes((section.id,)) + unsigned(len(payload)) + payload)
    return b"".join(sections)
