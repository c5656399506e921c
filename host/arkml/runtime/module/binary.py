"""The sections of a core wasm module, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import assert_never

from arkml.runtime.module.wasm_types import (
    ExternalType,
    FunctionType,
    GlobalType,
    MemoryType,
    TableType,
    TagType,
)

HEADER = b"\0asm\1\0\0\0"


class SectionId(IntEnum):
    """The number that a section starts with."""

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
"""The order of sections in a module. Custom sections may stand anywhere."""


class Kind(Enum):
    """What an import or an export is."""

    FUNCTION = 0
    TABLE = 1
    MEMORY = 2
    GLOBAL = 3
    TAG = 4


@dataclass(frozen=True, slots=True)
class Section:
    """Where a section lies: `start` is its number, `payload` the first byte after its size."""

    id: SectionId
    start: int
    payload: int
    end: int


@dataclass(frozen=True, slots=True)
class Import:
    """One import and the bytes that declare it."""

    module: str
    name: str
    type: ExternalType
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Export:
    """One export: `index` counts within its kind, imports first."""

    name: str
    kind: Kind
    index: int


@dataclass(frozen=True, slots=True)
class Global:
    """A global the module defines; `value` is its initial value if that is a plain integer."""

    type: GlobalType
    value: int | None = None


@dataclass(frozen=True, slots=True)
class DataSegment:
    """Bytes for a memory; `offset` is None where they are passive or their place is computed."""

    offset: int | None
    memory: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Bodies:
    """The function bodies: how many, which one is the largest (None without any), its bytes."""

    count: int = 0
    largest: int | None = None
    largest_size: int = 0


@dataclass(frozen=True, slots=True)
class Binary:
    """
    A parsed module.

    `functions`, `tables`, `memories`, `globals` and `tags` count imports first, as wasm does.
    `types` holds None where a type is not that of a function. `customs` says where the contents of
    each custom section are, of several with one name those of the first. `elements` is the number
    of element segments, `data_count` what the section of that name announces.
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

    def section(self, section_id: SectionId) -> Section | None:
        """The section of that kind; not for custom sections, of which there may be many."""
        return next((section for section in self.sections if section.id is section_id), None)

    def custom(self, name: str) -> bytes | None:
        """The contents of a custom section."""
        place = self.customs.get(name)
        return None if place is None else self.data[place]

    def space(self, kind: Kind) -> Sequence[ExternalType | Global]:
        """Everything of one kind, in the order of its indices."""
        match kind:
            case Kind.FUNCTION:
                return self.functions
            case Kind.TABLE:
                return self.tables
            case Kind.MEMORY:
                return self.memories
            case Kind.GLOBAL:
                return self.globals
            case Kind.TAG:
                return self.tags
            case _:
                assert_never(kind)

    def type_of(self, export: Export) -> ExternalType:
        """The type of what is exported."""
        exported = self.space(export.kind)[export.index]
        return exported.type if isinstance(exported, Global) else exported
