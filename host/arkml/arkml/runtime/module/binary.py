"""The parsed form of a core wasm module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import assert_never

from arkml.runtime.module.wasm_types import (
    PAGE,
    ExternalType,
    FunctionType,
    GlobalType,
    MemoryType,
    TableType,
    TagType,
)

HEADER = b"\0asm\1\0\0\0"
_MOST_PAGES, _U32 = 1 << 16, 0xFFFF_FFFF


class SectionId(IntEnum):
    """The id byte with which a section of a wasm module starts."""

    CUSTOM = 0
    TYPE = 1
    IMPORT = 2
    FUNCTION = 3
    TABLE = 4
    MEMORY = 5
    GLOBAL = 6
    EXPORT = 7
    START = 8
    ELEMENT = 9
    CODE = 10
    DATA = 11
    DATA_COUNT = 12
    TAG = 13


ORDER = (
    SectionId.TYPE,
    SectionId.IMPORT,
    SectionId.FUNCTION,
    SectionId.TABLE,
    SectionId.MEMORY,
    SectionId.TAG,
    SectionId.GLOBAL,
    SectionId.EXPORT,
    SectionId.START,
    SectionId.ELEMENT,
    SectionId.DATA_COUNT,
    SectionId.CODE,
    SectionId.DATA,
)
"""The order of sections in a module. Custom sections may be anywhere."""


SPEC = "arkml.spec"
"""The custom section that declares a module's agents, which comes once."""


class ExternKind(Enum):
    """The kind of an import or export."""

    FUNCTION = 0
    TABLE = 1
    MEMORY = 2
    GLOBAL = 3
    TAG = 4


@dataclass(frozen=True, slots=True)
class Section:
    """
    The byte range of a section, starting at its id; `payload` is the first byte after its size.
    """

    id: SectionId
    start: int
    payload: int
    end: int


@dataclass(frozen=True, slots=True)
class Import:
    """One import and the byte range of its declaration."""

    module: str
    name: str
    type: ExternalType
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Export:
    """One export; `index` counts within its kind, imports first."""

    name: str
    kind: ExternKind
    index: int


@dataclass(frozen=True, slots=True)
class Global:
    """A global of the module; `value` is its initial value if that is a plain integer."""

    type: GlobalType
    value: int | None = None


@dataclass(frozen=True, slots=True)
class DataSegment:
    """The byte range of a data segment; `offset` is None if it is passive or computed."""

    offset: int | None
    memory: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Bodies:
    """
    The function bodies: their number, the index of the largest or None, and its size in bytes.

    `exported` has the byte ranges of the bodies of exported functions, by index.
    """

    count: int = 0
    largest: int | None = None
    largest_size: int = 0
    exported: Mapping[int, slice] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Binary:
    """
    A parsed module.

    `functions`, `tables`, `memories`, `globals` and `tags` count imports first, as wasm does.
    `types` holds None for a type other than a function's. `customs` has the range of the contents
    of each custom section, the first of those with one name. `elements` is the number of element
    segments, `data_count` the number in the data count section.
    """

    data: bytes
    sections: tuple[Section, ...] = ()
    types: tuple[FunctionType | None, ...] = ()
    imports: tuple[Import, ...] = ()
    functions: tuple[FunctionType, ...] = ()
    tables: tuple[TableType, ...] = ()
    memories: tuple[MemoryType, ...] = ()
    globals: tuple[Global, ...] = ()
    tags: tuple[TagType, ...] = ()
    exports: tuple[Export, ...] = ()
    start: int | None = None
    elements: int = 0
    data_count: int | None = None
    bodies: Bodies = Bodies()
    segments: tuple[DataSegment, ...] = ()
    customs: Mapping[str, slice] = field(default_factory=dict)

    @property
    def has_objects(self) -> bool:
        """
        True if the module may create objects that wasmtime collects: structs, arrays, exceptions.
        """
        return bool(self.tags) or None in self.types

    @property
    def first_pages(self) -> int:
        """
        The number of pages of the module's first memory at the start.

        An imported memory may have more pages than the module asks for. Carts of WASM-4, for
        example, ask for none and fill some: it gets as many as its data segments need.
        """
        declared = self.memories[0]
        if not any(isinstance(entry.type, MemoryType) for entry in self.imports):
            return declared.minimum
        ends = [
            (segment.offset & _U32) + segment.end - segment.start
            for segment in self.segments
            if segment.offset is not None and not segment.memory
        ]
        most = _MOST_PAGES if declared.maximum is None else declared.maximum
        return max(declared.minimum, min(-(-max(ends, default=0) // PAGE), most))

    def section(self, section_id: SectionId) -> Section | None:
        """Return the section with this id, or None; not for custom sections, which may be many."""
        return next((section for section in self.sections if section.id is section_id), None)

    def custom(self, name: str) -> bytes | None:
        """Return the contents of a custom section, or None."""
        place = self.customs.get(name)
        return None if place is None else self.data[place]

    def space(self, kind: ExternKind) -> Sequence[ExternalType | Global]:
        """Return all items of one kind in the order of their indices, imports first."""
        match kind:
            case ExternKind.FUNCTION:
                return self.functions
            case ExternKind.TABLE:
                return self.tables
            case ExternKind.MEMORY:
                return self.memories
            case ExternKind.GLOBAL:
                return self.globals
            case ExternKind.TAG:
                return self.tags
            case _:
                assert_never(kind)

    def type_of(self, export: Export) -> ExternalType:
        """Return the type of an export."""
        exported = self.space(export.kind)[export.index]
        return exported.type if isinstance(exported, Global) else exported
