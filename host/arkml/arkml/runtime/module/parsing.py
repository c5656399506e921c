"""A parser of core wasm modules."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, assert_never

from arkml.base.file_kinds import kind_of
from arkml.errors import ModuleRejected
from arkml.runtime.module.binary import (
    HEADER,
    ORDER,
    SPEC,
    Binary,
    Bodies,
    DataSegment,
    Export,
    ExternKind,
    Global,
    Import,
    Section,
    SectionId,
)
from arkml.runtime.module.constants import constant
from arkml.runtime.module.names import check_names
from arkml.runtime.module.wasm_reader import Reader
from arkml.runtime.module.wasm_types import (
    ExternalType,
    FunctionType,
    GlobalType,
    MemoryType,
    TableType,
    TagType,
    definitions,
    global_type,
    memory_type,
    table_type,
)

_MAX_ITEMS = 1_000_000  # of one section: the limit of wasmtime
_MAX_SEGMENTS = 100_000  # the limit of wasmtime
_MAX_LISTED = 20_000  # entries of a kind of which each is an object here and in each instance
_MAX_CUSTOM_SECTIONS = 1_000
_MAX_DECLARATIONS = 4 << 20  # bytes of a section that is read item by item, in seconds at most
_MAX_OFFSET_OPERATORS = 16
_SKIMMED = frozenset((SectionId.CUSTOM, SectionId.ELEMENT, SectionId.CODE, SectionId.DATA))
_NAMES = "name"
COMPONENT = (
    "the module is a component; this host runs core modules: build it for wasm32-wasip1 or"
    " wasm32-unknown-unknown, or take the core module out of it"
)
_COMPONENT_LAYER = b"\1\0"
_NUMBERS = frozenset(SectionId)
_TABLE_WITH_VALUE = 0x40
_PASSIVE, _ACTIVE_WITH_MEMORY = 1, 2
_Item = TypeVar("_Item")
_External = TypeVar("_External", FunctionType, TableType, MemoryType, GlobalType, TagType)


def parse(data: bytes) -> Binary:
    """Parse every section of `data`. Raises ModuleRejected for malformed bytes."""
    _check_header(data)
    return _Parser(data).parsed()


def _check_header(data: bytes) -> None:
    if data[:8] == HEADER:
        return
    if not data.startswith(HEADER[:4]):
        if data.lstrip().startswith((b"(", b";;")):
            raise ModuleRejected("the module is WebAssembly text, not a binary")
        kind = kind_of(data) if data else "empty"
        found = f"is {kind}" if kind else f"begins with {data[:42]!r}"
        raise ModuleRejected(f"the module is not WebAssembly: it {found}")
    if data[6:8] == _COMPONENT_LAYER:
        raise ModuleRejected(COMPONENT)
    raise ModuleRejected(f"the module has the version {data[4:8]!r}, not 1")


def _sections(data: bytes) -> Iterator[Section]:
    reader = Reader(data, len(HEADER), len(data), "the module")
    last, customs = -1, 0
    while not reader.is_empty:
        start = reader.position
        number = reader.byte()
        if number not in _NUMBERS:
            raise reader.rejected(f"{number} is not a section id")
        section_id = SectionId(number)
        size = reader.u32()
        payload = reader.position
        reader.skip(size)
        if section_id is SectionId.CUSTOM:
            customs += 1
            if customs > _MAX_CUSTOM_SECTIONS:
                raise reader.rejected(f"more than {_MAX_CUSTOM_SECTIONS:,} custom sections")
        else:
            place = ORDER.index(section_id)
            if place <= last:
                raise reader.rejected(f"the {_title(section_id)} comes twice or too late")
            last = place
        if section_id not in _SKIMMED and size > _MAX_DECLARATIONS:
            raise reader.rejected(f"the {_title(section_id)} has {size:,} bytes")
        yield Section(section_id, start, payload, reader.position)


def _title(section_id: SectionId) -> str:
    return f"{section_id.name.lower().replace('_', ' ')} section"


class _Parser:
    """The sections of one module, with the parts of earlier sections that later ones refer to."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._sections = tuple(_sections(data))
        groups = self._items(SectionId.TYPE, definitions, _MAX_LISTED)
        self._types = tuple(itertools.chain.from_iterable(groups))
        self._imports = self._items(SectionId.IMPORT, self._import, _MAX_LISTED)

    def parsed(self) -> Binary:
        functions = self._items(SectionId.FUNCTION, self._function_type)
        variables = self._imported(GlobalType)
        imported = len(self._imported(FunctionType))
        exports = self._items(SectionId.EXPORT, _export, _MAX_LISTED)
        binary = Binary(
            data=self._data,
            sections=self._sections,
            types=self._types,
            imports=self._imports,
            functions=self._imported(FunctionType) + functions,
            tables=self._imported(TableType) + self._items(SectionId.TABLE, _table, _MAX_LISTED),
            memories=self._imported(MemoryType)
            + self._items(SectionId.MEMORY, memory_type, _MAX_LISTED),
            globals=tuple(map(Global, variables))
            + self._items(SectionId.GLOBAL, _global, _MAX_LISTED),
            tags=self._imported(TagType) + self._items(SectionId.TAG, self._tag, _MAX_LISTED),
            exports=exports,
            start=self._number(SectionId.START),
            elements=self._elements(),
            data_count=self._number(SectionId.DATA_COUNT),
            bodies=self._bodies(imported, len(functions), exports),
            segments=self._items(SectionId.DATA, _segment, _MAX_SEGMENTS),
            customs=self._customs(),
        )
        _check_indices(binary)
        return binary

    def _imported(self, kind: type[_External]) -> tuple[_External, ...]:
        return tuple(entry.type for entry in self._imports if isinstance(entry.type, kind))

    def _reader(self, section_id: SectionId) -> Reader | None:
        for section in self._sections:
            if section.id is section_id:
                return Reader(self._data, section.payload, section.end, _title(section_id))
        return None

    def _items(
        self, section_id: SectionId, read: Callable[[Reader], _Item], most: int = _MAX_ITEMS
    ) -> tuple[_Item, ...]:
        reader = self._reader(section_id)
        if reader is None:
            return ()
        items = tuple([read(reader) for _ in range(reader.count(most, "entries"))])
        _check_end(reader)
        return items

    def _number(self, section_id: SectionId) -> int | None:
        reader = self._reader(section_id)
        if reader is None:
            return None
        number = reader.u32()
        _check_end(reader)
        return number

    def _elements(self) -> int:
        reader = self._reader(SectionId.ELEMENT)
        return 0 if reader is None else reader.count(_MAX_ITEMS, "element segments")

    def _customs(self) -> dict[str, slice]:
        customs: dict[str, slice] = {}
        for section in self._sections:
            if section.id is SectionId.CUSTOM:
                reader = Reader(self._data, section.payload, section.end, "a custom section")
                name = reader.name()
                if name == SPEC and name in customs:
                    raise reader.rejected(f"{SPEC} comes twice")
                customs.setdefault(name, slice(reader.position, section.end))
                if name == _NAMES:
                    check_names(reader)
        return customs

    def _bodies(self, imported: int, declared: int, exports: Sequence[Export]) -> Bodies:
        wanted = {
            export.index - imported for export in exports if export.kind is ExternKind.FUNCTION
        }
        reader = self._reader(SectionId.CODE)
        count = 0 if reader is None else reader.count(_MAX_ITEMS, "entries")
        if count != declared:
            raise ModuleRejected(
                f"the module declares {declared:,} functions and has {count:,} bodies"
            )
        if reader is None or not count:
            return Bodies()
        largest, largest_size = 0, -1
        places: dict[int, slice] = {}
        for number in range(count):
            size = reader.u32()
            if size > largest_size:
                largest, largest_size = number, size
            if number in wanted:
                places[imported + number] = slice(reader.position, reader.position + size)
            reader.skip(size)
        _check_end(reader)
        return Bodies(count, imported + largest, largest_size, places)

    def _import(self, reader: Reader) -> Import:
        start = reader.position
        module, name = reader.name(), reader.name()
        kind = _kind(reader)
        return Import(module, name, self._external(kind, reader), start, reader.position)

    def _external(self, kind: ExternKind, reader: Reader) -> ExternalType:
        match kind:
            case ExternKind.FUNCTION:
                return self._function_type(reader)
            case ExternKind.TABLE:
                return table_type(reader)
            case ExternKind.MEMORY:
                return memory_type(reader)
            case ExternKind.GLOBAL:
                return global_type(reader)
            case ExternKind.TAG:
                return self._tag(reader)
            case _:
                assert_never(kind)

    def _function_type(self, reader: Reader) -> FunctionType:
        index = reader.u32()
        function = self._types[index] if index < len(self._types) else None
        if function is None:
            raise reader.rejected(f"type {index} is not a function type")
        return function

    def _tag(self, reader: Reader) -> TagType:
        if reader.byte():
            raise reader.rejected("a tag that is not an exception")
        return TagType(self._function_type(reader))


def _check_end(reader: Reader) -> None:
    if not reader.is_empty:
        raise reader.rejected(f"{reader.end - reader.position:,} bytes too many")


def _kind(reader: Reader) -> ExternKind:
    number = reader.byte()
    if number >= len(ExternKind):
        raise reader.rejected(f"{number:#x} is not a kind of import or export")
    return ExternKind(number)


def _table(reader: Reader) -> TableType:
    if reader.peek() != _TABLE_WITH_VALUE:
        return table_type(reader)
    reader.byte()
    if reader.byte():
        raise reader.rejected("an unknown form of a table declaration")
    table = table_type(reader)
    constant(reader)
    return table


def _global(reader: Reader) -> Global:
    variable = global_type(reader)
    return Global(variable, constant(reader))


def _export(reader: Reader) -> Export:
    name = reader.name()
    return Export(name, _kind(reader), reader.u32())


def _segment(reader: Reader) -> DataSegment:
    flags = reader.u32()
    if flags > _ACTIVE_WITH_MEMORY:
        raise reader.rejected(f"{flags} is not a kind of data segment")
    memory = reader.u32() if flags == _ACTIVE_WITH_MEMORY else 0
    offset = None if flags == _PASSIVE else constant(reader, _MAX_OFFSET_OPERATORS)
    size = reader.u32()
    start = reader.position
    reader.skip(size)
    return DataSegment(offset, memory, start, reader.position)


def _check_indices(binary: Binary) -> None:
    names: set[str] = set()
    for export in binary.exports:
        if export.index >= len(binary.space(export.kind)):
            raise ModuleRejected(
                f"the export {export.name!r} names {export.kind.name.lower()} {export.index}, "
                f"which does not exist"
            )
        if export.name in names:
            raise ModuleRejected(f"the export {export.name!r} comes twice")
        names.add(export.name)
    if binary.start is not None:
        if binary.start >= len(binary.functions):
            raise ModuleRejected(f"the start function {binary.start} does not exist")
        if binary.functions[binary.start] != FunctionType():
            raise ModuleRejected(
                f"the start function has the type {binary.functions[binary.start]}, not () -> ()"
            )
