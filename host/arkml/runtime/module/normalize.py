"""The rewriting of a module to import its memory and to run no code at instantiation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from arkml.errors import ModuleRejected
from arkml.limits import Limits
from arkml.runtime.module.binary import HEADER, ORDER, Binary, ExternKind, Section, SectionId
from arkml.runtime.module.parsing import parse
from arkml.runtime.module.reader import Reader, named, unsigned
from arkml.runtime.module.refusals import check, check_size
from arkml.runtime.module.wasm_types import MemoryType

MEMORY_MODULE, MEMORY_NAME = "arkml", "memory"
START_NAME = "arkml:start"

# No minimum and no maximum, so that any memory matches; the host keeps the declared bounds.
_MEMORY_IMPORT = named(MEMORY_MODULE) + named(MEMORY_NAME) + bytes((ExternKind.MEMORY.value, 0, 0))


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """
    The memory that the host creates for a guest, in pages of 64 KiB.

    `exports` are the names under which the module exports it; `imported` is True if the original
    module imports it.
    """

    minimum: int
    maximum: int | None
    exports: tuple[str, ...]
    imported: bool


@dataclass(frozen=True, slots=True)
class Normalized:
    """
    A module in the form that the host compiles.

    `wasm` imports its memory, if it has one, as `arkml.memory`. Its instantiation runs no code;
    with `has_start` it exports the original start function as `arkml:start`. `binary` is the
    original module.
    """

    wasm: bytes
    memory: MemoryPlan | None
    has_start: bool
    binary: Binary


def normalize(data: bytes, limits: Limits) -> Normalized:
    """
    Check `data` against `limits` and rewrite it.

    Indices, code, data and custom sections stay as they are. Raises ModuleError,
    MemoryLimitExceeded and TableLimitExceeded.
    """
    check_size(data, limits)
    binary = parse(data)
    check(binary, limits)
    if any(export.name == START_NAME for export in binary.exports):
        raise ModuleRejected(f"the module exports {START_NAME!r}, a name that this host reserves")
    memory = _plan(binary)
    has_start = binary.start is not None
    wasm = b"".join(_rewritten(binary)) if memory or has_start else data
    return Normalized(wasm, memory, has_start, binary)


def _plan(binary: Binary) -> MemoryPlan | None:
    if not binary.memories:
        return None
    declared = binary.memories[0]
    return MemoryPlan(
        declared.minimum,
        declared.maximum,
        tuple(export.name for export in binary.exports if export.kind is ExternKind.MEMORY),
        any(isinstance(entry.type, MemoryType) for entry in binary.imports),
    )


def _rewritten(binary: Binary) -> Iterator[bytes]:
    replaced = {SectionId.MEMORY: b"", SectionId.START: b""}
    if binary.memories:
        replaced[SectionId.IMPORT] = _section(SectionId.IMPORT, *_imports(binary))
    if binary.start is not None:
        replaced[SectionId.EXPORT] = _section(SectionId.EXPORT, *_exports(binary, binary.start))
    # A memory or a start section always follows, so every new section is inserted.
    added = [section_id for section_id in replaced if binary.section(section_id) is None]
    added.sort(key=ORDER.index)
    yield HEADER
    for section in binary.sections:
        while added and _comes_before(added[0], section):
            yield replaced[added.pop(0)]
        yield replaced.get(section.id, binary.data[section.start : section.end])


def _comes_before(section_id: SectionId, section: Section) -> bool:
    return section.id is not SectionId.CUSTOM and ORDER.index(section_id) < ORDER.index(section.id)


def _imports(binary: Binary) -> tuple[int, bytes]:
    entries = [
        _MEMORY_IMPORT
        if isinstance(entry.type, MemoryType)
        else binary.data[entry.start : entry.end]
        for entry in binary.imports
    ]
    if _MEMORY_IMPORT not in entries:
        entries.append(_MEMORY_IMPORT)
    return len(entries), b"".join(entries)


def _exports(binary: Binary, start: int) -> tuple[int, bytes]:
    added = named(START_NAME) + bytes((ExternKind.FUNCTION.value,)) + unsigned(start)
    section = binary.section(SectionId.EXPORT)
    if section is None:
        return 1, added
    reader = Reader(binary.data, section.payload, section.end, "export section")
    count = reader.u32()
    return count + 1, binary.data[reader.position : section.end] + added


def _section(section_id: SectionId, count: int, entries: bytes) -> bytes:
    payload = unsigned(count) + entries
    return bytes((section_id,)) + unsigned(len(payload)) + payload
