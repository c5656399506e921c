"""The sandbox of a guest: a Store with the instances of its shim and its module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import wasmtime

from arkml.errors import (
    ArkmlError,
    GuestFailed,
    InstanceLimitExceeded,
    MemoryLimitExceeded,
    ModuleRejected,
    TableLimitExceeded,
)
from arkml.runtime import bindings, epochs
from arkml.runtime.columns.region import Records
from arkml.runtime.columns.slabs import Columns
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.deadline import TURN_TICKS
from arkml.runtime.engine import Engine
from arkml.runtime.exported_function import ExportedFunction, RawFunction
from arkml.runtime.lockstep import Lockstep
from arkml.runtime.mappings import refused_by_the_machine
from arkml.runtime.memory import PAGE, GuestMemory
from arkml.runtime.module.normalize import function_export, global_export, table_export
from arkml.runtime.module.startup import CONSTRUCTORS_NAME, START_NAME
from arkml.runtime.module.wasm_types import FunctionType
from arkml.runtime.saved_memory import Place, SavedMemory
from arkml.runtime.shim import control_block as at
from arkml.runtime.shim import frame
from arkml.runtime.shim.refusal_reasons import RefusalNotes
from arkml.runtime.shim.render import export_name, game_export
from arkml.runtime.steps import GUEST, MEMORY, OF, OTHER, SHIM, SLOT, NoRoom, StepList, new_room
from arkml.runtime.store import GuestStore
from arkml.runtime.tables import SavedTables, Tables
from arkml.runtime.traps import HEAP_FULL, NO_ROOM_FOR_OBJECTS
from arkml.runtime.wasi.linking import NO_GRANT, WasiGrant, config, free_descriptors

_Read = TypeVar("_Read")
_STARTING = (START_NAME, CONSTRUCTORS_NAME)
_BUILD_TICKS = 1 << 32  # no guest code runs, but segments are filled: however slow, not cut short


_NONE_USED: frozenset[str] = frozenset()
_NO_ENTRIES: dict[str, ExportedFunction] = {}  # one for all guests that are called together


@lru_cache(maxsize=256)
def _with(names: frozenset[str], name: str) -> frozenset[str]:
    """Return the names with one more: one object for all guests that are called alike."""
    return names | {name}


def most_memory(module: CompiledModule) -> int:
    """Return the most bytes to which the memory of a module's instance may grow."""
    plan, most = module.memory, min(module.limits.memory_bytes, module.limits.guest_bytes)
    if plan is None:
        return 0
    if module.has_objects:
        most = min(most, module.limits.guest_bytes // 3)
    return most if plan.maximum is None else min(most, plan.maximum * PAGE)


def most_objects(module: CompiledModule) -> int:
    """
    Return the most bytes to which the garbage-collected heap of a module's instance may grow.

    wasmtime has one limit for both this heap and the memory, and does not report the growth of
    either. So each may have a third of the guest's bytes, and the heap is charged in full.
    """
    if not module.has_objects:
        return 0
    if module.memory is None:
        return min(module.limits.memory_bytes, module.limits.guest_bytes // 3)
    return max(PAGE, most_memory(module))


def most_native(module: CompiledModule) -> int:
    """Return the most bytes that wasmtime may allocate for an instance of a module."""
    return most_memory(module) + most_objects(module)


class WasmState(NamedTuple):
    """
    A copy of the memory, globals and tables of an instance.

    Attributes:
        memory: The memory.
        globals: The values of the mutable globals, in the form that `bindings.Globals` takes.
        tables: The elements of the tables; empty for a module whose code does not change tables.

    """

    memory: SavedMemory
    globals: bytes
    tables: SavedTables = ()

    @property
    def nbytes(self) -> int:
        """The bytes that the copy takes."""
        size = self.memory.nbytes + len(self.globals)
        return size + sum(map(len, self.tables)) if self.tables else size


class Sandbox:
    """
    One instance of a module in a Store of its own. Making it runs no guest code.

    `control` is the offset of the control block in the column memory, `memory` is the guest's
    memory, which may be of the caller's own class, and `place` is the guest's slot in `lockstep`.
    With `virtual` the host answers the WASI calls for clocks and random numbers.
    """

    __slots__ = (
        "_arena", "_found_globals", "_found_tables", "_growth", "_is_virtual", "_loop", "_looped",
        "_most", "_native_memory", "_owns_control", "_refusals", "_room", "_store", "columns",
        "context", "control", "engine", "entries", "lockstep", "memory", "place", "program",
        "records", "used", "wasi",
    )  # fmt: skip

    def __init__(
        self,
        engine: Engine,
        program: CompiledModule,
        columns: Columns,
        lockstep: Lockstep,
        wasi: WasiGrant | None,
        *,
        virtual: bool = False,
        memory: GuestMemory | None = None,
    ) -> None:
        self.engine = engine
        self.program = program
        self.columns = columns
        self.lockstep = lockstep
        self.entries = _NO_ENTRIES  # as long as none was
        """The exported functions that were called alone, by name."""
        self._loop: ExportedFunction | None = None
        self._looped = ""  # the name of the function that the shim's loop calls
        self.used = _NONE_USED
        """The names of the exported functions in use."""
        self.memory = GuestMemory(0, program.limits) if memory is None else memory
        self._found_globals: bindings.Globals | None = None
        self._found_tables: Tables | None = None
        self._growth = self._most = 0  # bytes that the memory may grow to, now and at most
        self._arena = arena = engine.arena
        self.wasi = wasi or NO_GRANT
        """What of WASI is granted."""
        self._is_virtual = virtual
        granted = self._granted()
        self.control = arena.allocate(at.CONTROL_SIZE)
        self.records = Records(arena, self.control, program.limits.column_bytes)
        try:  # a round may be in progress
            self._store = GuestStore(engine.address, arena.memory, lockstep, self.control)
        except BaseException:
            arena.free(self.control, at.CONTROL_SIZE)
            raise
        self._owns_control = True
        self.place = self._store.place
        self._refusals: RefusalNotes | None = None  # until there is something to tell
        self.context = self._store.context
        self._room = new_room()
        """Where the instances lie."""
        try:
            self._build(granted)
        except (wasmtime.WasmtimeError, wasmtime.Trap) as error:
            self.close()
            raise _explain(program.name, error) from None
        except BaseException:
            self.close()
            raise

    @property
    def refusals(self) -> RefusalNotes:
        """Notes on refused pushes and submits of the guest, for the thread that runs it."""
        if self._refusals is None:
            self._refusals = RefusalNotes(self._arena, self.control)
        return self._refusals

    def refusal_counts(self) -> Counter[str]:
        """
        Return how often a push or submit was refused, by explaining sentences. For any thread.
        """
        notes = self._refusals or RefusalNotes(self._arena, self.control)
        return notes.counts()

    def entry(self, name: str) -> ExportedFunction | None:
        """Return the exported function `name`, or None."""
        entry = self.entries.get(name)
        if entry is None and (function := self.function(name)) is not None:
            kind = self.program.functions.get(name, FunctionType())
            entry = ExportedFunction(function, name, kind.params, kind.results)
            self.entries = self.entries or {}
            self.entries[name] = entry
        return entry

    def function(self, name: str) -> RawFunction | None:
        """Return the exported function `name` in the form that calls of a fleet keep, or None."""
        startup = self.program.info.startup
        is_start = name in _STARTING and name in (*startup.functions, startup.deferred)
        if name not in self.program.functions and not is_start:
            return None
        function = bindings.function_of(self.exported(name))
        self.used = _with(self.used, name)
        place, _ = function.buffer_info()
        return RawFunction(self.context, place, self._errors, function)

    def loop(self, name: str) -> ExportedFunction | None:
        """
        Return the shim's loop of frames over the exported function `name`.

        Returns None for a function with parameters or results, and if the loop already has another
        function.
        """
        if self._loop is None and (function := self.loop_function(name)) is not None:
            self._loop = ExportedFunction(function, name)
        return self._loop if self._looped == name else None

    @property
    def _errors(self) -> bindings.Address:
        return self._arena.base + self.control + at.TRAP

    def loop_function(self, name: str) -> RawFunction | None:
        """
        Return the loop of frames over the exported function `name` for calls of a fleet, or None.
        """
        if not self._looped and self.program.functions.get(name) == FunctionType():
            self._found(partial(self._begin_loop, name))
        if self._looped != name:
            return None
        place = self._slot(OTHER) + OF
        return RawFunction(self.context, place, self._errors, self._room)

    def _begin_loop(self, name: str) -> bool:
        """Let the shim's loop call the exported function `name`."""
        self._store.take(_looping(name), self.control, self._room)
        self._looped, self.used = name, _with(self.used, name)
        return True

    def _slot(self, number: int) -> bindings.Address:
        start, _ = self._room.buffer_info()
        return start + number * SLOT

    @property
    def _guest(self) -> bindings.RawInstance:
        place = self._slot(GUEST)
        return bindings.RawInstance(self.context, place, self._room)

    def _found(self, find: Callable[[], Any]) -> Any:
        """Return an item of the guest. Raises GuestFailed if another thread has closed it."""
        extern = self._store.read(find)
        if extern is None:
            raise GuestFailed(f"{self.program.name} is closed")
        return extern

    def limit_memory(self, size: int) -> bool:
        """
        Let the guest's memory grow to `size` bytes, or to its own limit if that is lower.

        Returns True if `size` is the lower limit.
        """
        allowed = max(0, min(size, self._most))
        if allowed != self._growth:
            self._growth = allowed
            self._store.limit(_caps(self.program, allowed, self.program.table_share))
        return allowed < self._most

    @property
    def pages(self) -> int:
        """The size of the guest's memory in pages, 0 if it has none. Any thread may read it."""
        return self._store.read(self._present_pages) or 0

    def _present_pages(self) -> int:
        return self._native_memory.pages()  # of the present Store: it may have been another before

    @property
    def base(self) -> bindings.Address:
        """The address of the guest's memory in the process, which never changes."""
        return self._native_memory.base

    @property
    def raw_memory(self) -> bindings.Address:
        """The address of the memory's wasmtime_memory_t."""
        return self._native_memory.place

    @property
    def raw_globals(self) -> Sequence[bindings.Address]:
        """The address of the wasmtime_global_t of each mutable global."""
        return self._globals.places

    def exported(self, name: str) -> Any:
        """Return an export as a wasmtime_extern_t. Raises GuestFailed once the guest is closed."""
        return self._found(partial(self._guest.export, name))

    @property
    def memory_place(self) -> Place:
        """The address and the size in bytes of the guest's memory; 0 bytes once it is freed."""
        return self.base, self.pages * PAGE

    def copied(self) -> WasmState:
        """Return a copy of the memory, the mutable globals and the tables."""
        return self.saved(lambda _: None)

    def saved(self, admit: Callable[[int], object]) -> WasmState:
        """
        Return a copy of memory, globals and tables between two calls; blocks freeing meanwhile.

        `admit` is called before, with the bytes that the copy of the memory takes.
        """
        memory = self._native_memory
        place = memory.base, memory.pages() * PAGE
        if not self.program.state.tables:
            return WasmState(SavedMemory.of(place, admit), self.read_globals())
        tables = self._tables.read()
        others = sum(map(len, tables))
        copy = SavedMemory.of(place, lambda size: admit(size + others))
        return WasmState(copy, self.read_globals(), tables)

    def go_back(self, state: WasmState) -> None:
        """Restore a saved state. Raises MemoryLimitExceeded and TableLimitExceeded."""
        self.fit(len(state.memory), state.tables)
        state.memory.load(self.base)
        self.write_globals(state.globals)
        if state.tables:
            self.write_tables(state.tables)

    def fit(self, size: int, tables: SavedTables) -> None:
        """
        Resize the memory to `size` bytes, and the tables to the sizes of saved ones.

        Contents are undefined. Memory and tables cannot shrink: if one is larger, the whole
        instance is made anew, and addresses of exported functions change. Raises
        MemoryLimitExceeded and TableLimitExceeded.
        """
        pages = size // PAGE
        if pages < self._native_memory.pages() or (tables and self._tables.exceed(tables)):
            self._renew()
        self._reserve(self._native_memory, pages - self._native_memory.pages())
        if tables:
            try:
                self._tables.fit(tables)
            except wasmtime.WasmtimeError as error:
                raise TableLimitExceeded(f"{self.program.name}: {error}") from None

    def read_tables(self) -> SavedTables:
        """Return the elements of tables that can change. Raises StateRefused."""
        return self._tables.read()

    def write_tables(self, tables: SavedTables) -> None:
        """Set the elements of tables to a result of `read_tables`."""
        self._tables.write(tables)

    def read_globals(self) -> bytes:
        """Return the values of the mutable globals."""
        return self._globals.read()

    def write_globals(self, values: bytes) -> None:
        """Set the mutable globals to a result of `read_globals`."""
        self._globals.write(values)

    def become(self, program: CompiledModule, state: Callable[[], WasmState]) -> None:
        """
        Run another module of the same layout, with the memory and the globals of a new instance.

        Raises the errors of a new instance: then the old module stays, with the state that `state`
        returns. If neither module can be instantiated, `is_built` is False.
        """
        before = self.program
        self.program = program
        try:
            self._renew()
        except BaseException:
            self.program = before
            self._renew()
            self.go_back(state())
            raise

    @property
    def _globals(self) -> bindings.Globals:
        if self._found_globals is None:
            kinds = self.program.state.kinds
            externs = [self._guest.export(global_export(number)) for number in range(len(kinds))]
            self._found_globals = bindings.Globals(self.context, externs, kinds)
        return self._found_globals

    @property
    def _tables(self) -> Tables:
        if self._found_tables is None:
            plan, export = self.program.state, self._guest.export
            tables = [export(table_export(number)) for number in range(len(plan.tables))]
            functions = [export(function_export(number)) for number in range(len(plan.functions))]
            self._found_tables = Tables(self.context, plan, tables, functions)
        return self._found_tables

    def _renew(self) -> None:
        """Make the instance anew, in the same place. The guest is in no call."""
        allowed, granted = self._growth, self._granted()
        self._store.replace(self.engine.address)
        self.context = self._store.context
        self.entries, self.used = _NO_ENTRIES, _NONE_USED
        self._loop, self._looped = None, ""
        self._found_globals = self._found_tables = None
        self._build(granted)
        self.limit_memory(allowed)

    def read(self, what: Callable[[], _Read]) -> _Read | None:
        """Return the result of a function that reads the guest, None once it is freed."""
        return self._store.read(what)

    def close_files(self) -> None:
        """Close the files of a guest that will not be called again."""
        if self.program.linkage.wasi:
            self._store.close_files()

    @property
    def is_closed(self) -> bool:
        """True once `close` has begun."""
        return self._store.is_ended

    @property
    def is_built(self) -> bool:
        """False after a `become` in which neither module could be instantiated; then close this."""
        return self._store.is_built

    def close(self) -> None:
        """Free the call in progress, the Store and the column memory. Safe to call twice."""
        self._store.close()
        self.records.release()
        if self._owns_control:
            self._owns_control = False  # first: it must not be freed twice
            self._arena.free(self.control, at.CONTROL_SIZE)

    def _granted(self) -> wasmtime.WasiConfig | None:
        """Return the WASI configuration of the guest, None for a guest without WASI."""
        return config(self.wasi) if self.program.linkage.wasi else None

    def _build(self, granted: wasmtime.WasiConfig | None) -> None:
        """Make the instances, in a new Store."""
        engine, program = self.engine, self.program
        arena, control = engine.arena, self.control
        self._growth = self._most = _most_growth(program)
        free = 0
        if granted is not None:
            bindings.set_wasi(self.context, granted)
            free = free_descriptors(program.limits.descriptors, self.wasi)
        numbers, state = arena.numbers, (control + at.CONTINUATION) >> 3
        numbers[state], numbers[state + 1] = bindings.STRLEN, arena.base + control
        arena.words[(control + at.TURN) >> 2] = TURN_TICKS
        steps = self._making(free)
        with engine.linking:
            try:
                self._store.take(steps, control, self._room)
            except NoRoom:
                assert program.memory is not None
                raise self._has_no_room(program.memory.minimum) from None
        memory = bindings.NativeMemory(self.context, self._slot(MEMORY) + OF, self._room)
        self._native_memory = memory
        self.memory.move(memory.base)  # handlers know it, also of one made anew
        self.lockstep.memories[self.place] = memory.base
        self._store.is_built = True

    def _making(self, free: int) -> StepList:
        """Return the steps that make the instances, for guests with so many free descriptors."""
        key = free, self._is_virtual
        by_grant = self.engine.makers.get(self.program)
        if by_grant is None:
            by_grant = self.engine.makers[self.program] = {}
        steps = by_grant.get(key)
        if steps is None:
            steps = by_grant[key] = _making(self.engine, self.program, *key)
        return steps

    def _reserve(self, memory: bindings.NativeMemory, pages: int) -> None:
        if pages:
            try:
                memory.grow(pages)
            except wasmtime.WasmtimeError:
                raise self._has_no_room(pages) from None

    def _has_no_room(self, pages: int) -> MemoryLimitExceeded:
        limits, most = self.program.limits, self._growth
        name = "memory_bytes" if most == limits.memory_bytes else "guest_bytes"
        return MemoryLimitExceeded(
            f"{self.program.name} needs {pages * PAGE:,} bytes of memory at start,"
            f" more than the {most:,} that Limits.{name} leaves it"
        )


def _most_growth(program: CompiledModule) -> int:
    """Return the bytes that a memory may grow to at most, and so may the objects."""
    return max(most_memory(program), most_objects(program))


def _caps(
    program: CompiledModule, growth: int, table_elements: int
) -> tuple[int, int, int, int, int]:
    """Return the limits of a Store, in the order of `bindings.limit_store`."""
    instances, memories = 4, 1  # shim, guest, WASI shim, stubs
    tables = 1 + program.limits.tables  # the shim has one, of one element
    return growth, max(1, table_elements), instances, tables, memories


def _making(engine: Engine, program: CompiledModule, free: int, is_virtual: bool) -> StepList:
    """Return the steps that make the instances of a module in a new Store."""
    arena, linkage, limits = engine.arena, program.linkage, program.limits
    growth = _most_growth(program)
    linker = engine.wasi.linker if linkage.wasi else engine.linker
    steps = StepList()
    steps.limit(_caps(program, growth, limits.table_elements))
    steps.set_deadline(_BUILD_TICKS)
    steps.instantiate_prepared(SHIM, engine.shim(program.shim_exports))
    steps.export(SHIM, "base")
    steps.set_global("i32", 0, by_block=True)
    steps.export(SHIM, "continuation")
    steps.set_global("i64", arena.base + at.CONTINUATION, by_block=True)
    steps.export(SHIM, "memory", MEMORY)
    if program.memory is not None and program.memory.minimum:
        steps.grow(MEMORY, program.memory.minimum)
    steps.define(linker, "arkml", "memory", MEMORY)
    for module, name in linkage.shim:
        steps.export(SHIM, export_name(module, name))
        steps.define(linker, module, name)
    for index, entry in enumerate(linkage.game):
        steps.export(SHIM, game_export(index))
        steps.define(linker, entry.module, entry.name)
    if linkage.wasi:
        imported = [name for _, name in linkage.wasi]
        engine.wasi.link(steps, imported, free=free, virtual=is_virtual)
    if program.stubs is not None:
        steps.instantiate(OTHER, linker, program.stubs)
        for number, stub in enumerate(linkage.stubs):
            steps.export(OTHER, str(number))
            steps.define(linker, stub.module, stub.name)
    steps.instantiate(GUEST, linker, program.module)
    # Not before: the limit also holds for a table's initial size, which may exceed its share.
    if program.table_share != limits.table_elements:
        steps.limit(_caps(program, growth, program.table_share))
    callback = bindings.address_of(epochs.callback())
    steps.end_turns(callback, arena.base + at.DEADLINE)
    steps.set_deadline(TURN_TICKS)
    return steps


@lru_cache(maxsize=64)
def _looping(name: str) -> StepList:
    """Return the steps that let the shim's loop call an export, and leave the loop in OTHER."""
    steps = StepList()
    steps.export(GUEST, name)
    steps.export(SHIM, frame.LOOPED, OTHER)
    steps.set_element(OTHER)
    steps.export(SHIM, frame.LOOP, OTHER)
    return steps


def _explain(name: str, error: wasmtime.WasmtimeError | wasmtime.Trap) -> ArkmlError:
    text = " ".join(str(error).split())
    code = error.trap_code if isinstance(error, wasmtime.Trap) else None
    if HEAP_FULL in text or code is wasmtime.TrapCode.ALLOCATION_TOO_LARGE:
        return MemoryLimitExceeded(f"{name} cannot be instantiated: {NO_ROOM_FOR_OBJECTS}")
    if isinstance(error, wasmtime.Trap):
        return ModuleRejected(f"{name} cannot be instantiated, a segment does not fit: {text}")
    if reason := refused_by_the_machine(error):
        return InstanceLimitExceeded(f"{name} cannot be instantiated: {reason}")
    return InstanceLimitExceeded(f"{name} cannot be instantiated: {text}")
