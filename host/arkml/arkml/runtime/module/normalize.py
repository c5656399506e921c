"""The rewriting of a module to import its memory and to run no code at instantiation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from arkml.errors import ModuleRejected
from arkml.limits import Limits
from arkml.runtime.module.binary import HEADER, ORDER, Binary, ExternKind, Section, SectionId
from arkml.runtime.module.parsing import parse
from arkml.runtime.module.refusals import check, check_size
from arkml.runtime.module.startup import CONSTRUCTORS_NAME, START_NAME, find_wrappers
from arkml.runtime.module.table_changes import functions_of_tables, keeps_tables
from arkml.runtime.module.wasm_reader import named, unsigned
from arkml.runtime.module.wasm_types import MemoryType, TableType

MEMORY_MODULE, MEMORY_NAME = "arkml", "memory"

_GLOBAL, _TABLE, _FUNCTION = "arkml:global:", "arkml:table:", "arkml:function:"
_COPIED = frozenset(("i32", "i64", "f32", "f64", "v128"))
FUNCTIONS = "funcref"
_COPIED_ELEMENTS = frozenset((FUNCTIONS, "externref"))  # the latter are null: nothing makes others
MOST_GLOBALS = 10_000

_RESERVED = (_GLOBAL, _TABLE, _FUNCTION)
_Exported: TypeAlias = tuple[str, ExternKind, int]

# No minimum and no maximum, so that any memory matches; the host keeps the declared bounds.
_MEMORY_IMPORT = named(MEMORY_MODULE) + named(MEMORY_NAME) + bytes((ExternKind.MEMORY.value, 0, 0))


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """
    The memory that the host creates for a guest, in pages of 64 KiB.

    `exports` are the names under which the module exports the memory; `imported` is True if the
    original module imports it.
    """

    minimum: int
    maximum: int | None
    exports: tuple[str, ...]
    imported: bool


@dataclass(frozen=True, slots=True)
class CodePlaces:
    """
    The translation of code offsets in the compiled module to offsets in the original module.

    The original code begins `shift` bytes earlier than the compiled code: offset 0x1a4 of a trap,
    for example, is 0x190 there if `shift` is 20. `exported` has a name for each exported function,
    by the function's index.
    """

    shift: int
    exported: Mapping[int, str]


class StatePlan(NamedTuple):
    """
    The state of an instance beside its memory.

    Attributes:
        kinds: Types of the mutable globals; number k is exported as `arkml:global:k`.
        obstacle: The reason why the state cannot be copied, or "".
        tables: The tables, if code may change them; number k is exported as `arkml:table:k`.
        functions: Indices of the functions that the tables may hold; number k is exported as
            `arkml:function:k`.

    """

    kinds: tuple[str, ...]
    obstacle: str
    tables: tuple[TableType, ...] = ()
    functions: tuple[int, ...] = ()


NO_STATE = StatePlan((), "")


@dataclass(frozen=True, slots=True)
class Normalized:
    """
    A module in the form that the host compiles.

    `wasm` is the rewritten module: it imports its memory, if any, as `arkml.memory`, exports the
    globals and tables that can change, and runs no code at instantiation. `added` are new exports,
    with the index of the function: the start function as `arkml:start`, and as `arkml:constructors`
    the constructors, which each export of the original module calls and no export of `wasm` does.
    `binary` is the original module; its code begins `shift` bytes earlier than the code of `wasm`.
    `state` lists what can change.
    """

    wasm: bytes
    memory: MemoryPlan | None
    added: Mapping[str, int]
    binary: Binary
    shift: int = 0
    state: StatePlan = NO_STATE


def normalize(data: bytes, limits: Limits) -> Normalized:
    """
    Check `data` against `limits` and rewrite it.

    Indices of functions, code, data and custom sections do not change. Raises ModuleError,
    MemoryLimitExceeded and TableLimitExceeded.
    """
    check_size(data, limits)
    binary = parse(data)
    check(binary, limits)
    for export in binary.exports:
        if export.name in (START_NAME, CONSTRUCTORS_NAME) or export.name.startswith(_RESERVED):
            raise ModuleRejected(
                f"the module exports {export.name!r}, a name that this host reserves"
            )
    memory, wrappers = _plan(binary), find_wrappers(binary)
    added: dict[str, int] = {}
    if binary.start is not None:
        added[START_NAME] = binary.start
    if wrappers is not None:
        added[CONSTRUCTORS_NAME] = wrappers.constructors
    variables = _variables(binary)
    state = _state(binary, variables)
    if not (memory or added or variables or state.tables):
        return Normalized(data, memory, added, binary, state=state)
    wrapped = {} if wrappers is None else wrappers.wrapped
    changing = [(global_export(at), ExternKind.GLOBAL, index) for at, index in enumerate(variables)]
    changing += [(table_export(at), ExternKind.TABLE, at) for at in range(len(state.tables))]
    changing += [
        (function_export(at), ExternKind.FUNCTION, index)
        for at, index in enumerate(state.functions)
    ]
    wasm = b"".join(_rewritten(binary, added, wrapped, changing))
    return Normalized(wasm, memory, added, binary, len(wasm) - len(data), state)


def global_export(number: int) -> str:
    """Return the name under which mutable global `number` is exported."""
    return f"{_GLOBAL}{number}"


def table_export(number: int) -> str:
    """Return the name under which table `number`, whose elements can change, is exported."""
    return f"{_TABLE}{number}"


def function_export(number: int) -> str:
    """Return the name under which the function with this number in `StatePlan` is exported."""
    return f"{_FUNCTION}{number}"


def _variables(binary: Binary) -> list[int]:
    """Return the indices of globals that can change, if they are few enough to be copied."""
    found = [index for index, each in enumerate(binary.globals) if each.type.is_mutable]
    return found if len(found) <= MOST_GLOBALS else []


def _state(binary: Binary, variables: Sequence[int]) -> StatePlan:
    kinds = tuple(binary.globals[index].type.value for index in variables)
    obstacle = _obstacle(binary, kinds)
    if obstacle or keeps_tables(binary):
        return StatePlan(kinds, obstacle)
    for table in binary.tables:
        if table.element not in _COPIED_ELEMENTS:
            others = f"it has instructions that may change a table of {table.element}"
            return StatePlan(kinds, f"{others}: of tables, those of funcref are copied")
    return StatePlan(kinds, "", binary.tables, tuple(sorted(functions_of_tables(binary))))


def _obstacle(binary: Binary, kinds: Sequence[str]) -> str:
    if binary.has_objects:
        return "it has objects that wasmtime collects, which cannot be copied"
    changing = sum(each.type.is_mutable for each in binary.globals)
    if changing > len(kinds):
        return f"it has {changing:,} globals that change: up to {MOST_GLOBALS:,} are copied"
    others = [kind for kind in kinds if kind not in _COPIED]
    if others:
        return f"it has a global of type {others[0]} that changes, and references are not copied"
    return ""


def _plan(binary: Binary) -> MemoryPlan | None:
    if not binary.memories:
        return None
    declared = binary.memories[0]
    return MemoryPlan(
        binary.first_pages,
        declared.maximum,
        tuple(export.name for export in binary.exports if export.kind is ExternKind.MEMORY),
        any(isinstance(entry.type, MemoryType) for entry in binary.imports),
    )


def _rewritten(
    binary: Binary,
    added: Mapping[str, int],
    wrapped: Mapping[int, int],
    changing: Sequence[_Exported],
) -> Iterator[bytes]:
    # The shim defines the memory, so that pushes copy without Python (decision 1).
    replaced = {SectionId.MEMORY: b"", SectionId.START: b""}
    if binary.memories:
        replaced[SectionId.IMPORT] = _section(SectionId.IMPORT, *_imports(binary))
    if added or changing:
        exports = _exports(binary, added, wrapped, changing)
        replaced[SectionId.EXPORT] = _section(SectionId.EXPORT, *exports)
    new = [section_id for section_id in replaced if binary.section(section_id) is None]
    new.sort(key=ORDER.index)
    yield HEADER
    for section in binary.sections:
        while new and _comes_before(new[0], section):
            yield replaced[new.pop(0)]
        yield replaced.get(section.id, binary.data[section.start : section.end])
    yield from map(replaced.__getitem__, new)


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


def _exports(
    binary: Binary,
    added: Mapping[str, int],
    wrapped: Mapping[int, int],
    changing: Sequence[_Exported],
) -> tuple[int, bytes]:
    entries: list[_Exported] = [
        (export.name, export.kind, wrapped.get(export.index, export.index))
        if export.kind is ExternKind.FUNCTION
        else (export.name, export.kind, export.index)
        for export in binary.exports
    ]
    entries += [(name, ExternKind.FUNCTION, index) for name, index in added.items()]
    entries += changing
    return len(entries), b"".join(
        named(name) + bytes((kind.value,)) + unsigned(index) for name, kind, index in entries
    )


def _section(section_id: SectionId, count: int, entries: bytes) -> bytes:
    payload = unsigned(count) + entries
    return bytes((section_id,)) + unsigned(len(payload)) + payload
