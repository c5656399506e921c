"""The Store of a guest with its instances: shim, guest, and any other imported modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
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
from arkml.runtime import bindings
from arkml.runtime.columns.records import Records
from arkml.runtime.columns.region import Region
from arkml.runtime.columns.slabs import Columns
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.deadline import TURN_TICKS
from arkml.runtime.engine import Engine
from arkml.runtime.exported_function import ExportedFunction
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
from arkml.runtime.store import GuestStore
from arkml.runtime.tables import SavedTables, Tables
from arkml.runtime.traps import HEAP_FULL, NO_ROOM_FOR_OBJECTS
from arkml.runtime.wasi.linking import NO_GRANT, WasiGrant, config, free_descriptors

_Read = TypeVar("_Read")
_STARTING = (START_NAME, CONSTRUCTORS_NAME)
_BUILD_TICKS = 1 << 32  # no guest code runs, but segments are filled: however slow, not cut short


def most_memory(module: CompiledModule) -> int:
    """Return the bytes to which the memory of an instance may grow."""
    plan, most = module.memory, min(module.limits.memory_bytes, module.limits.guest_bytes)
    if plan is None:
        return 0
    if module.has_objects:
        most = min(most, module.limits.guest_bytes // 3)
    return most if plan.maximum is None else min(most, plan.maximum * PAGE)


def most_objects(module: CompiledModule) -> int:
    """
    Return the bytes to which the garbage-collected heap of an instance may grow.

    wasmtime has one limit for both this heap and the memory, and does not report the growth of
    either. So each may have a third of the guest's bytes, and the heap is charged in full.
    """
    if not module.has_objects:
        return 0
    if module.memory is None:
        return min(module.limits.memory_bytes, module.limits.guest_bytes // 3)
    return max(PAGE, most_memory(module))


def most_native(module: CompiledModule) -> int:
    """Return the bytes that wasmtime may allocate for an instance."""
    return most_memory(module) + most_objects(module)


class WasmState(NamedTuple):
    """
    A copy of what an instance has in wasm.

    Attributes:
        memory: Its memory.
        globals: The values of the globals that can change, as `bindings.Globals` takes them.
        tables: The elements of its tables, none for a module whose code leaves them as they are.

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
    One instance of a program. Making it runs no guest code.

    `control` is the offset of the control block in the column memory, `memory` is the guest's
    memory, which may be of the caller's own class, and its call is at `place` of `lockstep`. With
    `virtual` the WASI clocks and random numbers are answered by the host.
    """

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
        self.entries: dict[str, ExportedFunction] = {}
        """The exported functions in use, by name."""
        self._loop: ExportedFunction | None = None
        self.regions: dict[int, Region] = {}
        """The queues of the open sessions, by the index of their records."""
        self.memory = GuestMemory(0, program.limits) if memory is None else memory
        self._growth = self._most = 0  # bytes that the memory may grow to, now and at most
        self._arena = arena = engine.arena
        wasi = self._wasi = wasi or NO_GRANT
        self._is_virtual = virtual
        store = self._limited(wasi)
        self.control = arena.allocate(at.CONTROL_SIZE)
        with ExitStack() as given_back:  # if there is no column memory, or a round is in progress
            given_back.callback(arena.free, self.control, at.CONTROL_SIZE)
            self.records = Records(arena, self.control, program.limits.column_bytes)
            given_back.callback(self.records.release)
            self._store = GuestStore(store, arena.memory, lockstep, self.control)
            given_back.pop_all()
        self._owns_control = True
        self.place = self._store.place
        self.refusals = RefusalNotes(arena, self.control)
        self.context = self._store.context
        self._errors = arena.base + self.control + at.TRAP
        try:
            self._build(wasi, virtual=virtual)
        except (wasmtime.WasmtimeError, wasmtime.Trap) as error:
            self.close()
            raise _explain(program.name, error) from None
        except BaseException:
            self.close()
            raise

    def entry(self, name: str) -> ExportedFunction | None:
        """Return the exported function `name`, or None."""
        entry = self.entries.get(name)
        if entry is None:
            kind = self.program.functions.get(name)
            startup = self.program.info.startup
            if name in _STARTING and name in (*startup.functions, startup.deferred):
                kind = FunctionType()
            if kind is None:
                return None
            entry = self.entries[name] = ExportedFunction(
                self.context,
                self._found(partial(self._guest.export, name)),
                name,
                self._errors,
                kind.params,
                kind.results,
            )
        return entry

    def loop(self, name: str) -> ExportedFunction | None:
        """
        Return the shim's loop of frames over the exported function `name`.

        None for a function with parameters or results, and for a second function: there is one
        loop.
        """
        loop = self._loop
        if loop is None and self.program.functions.get(name) == FunctionType():
            extern = self._found(partial(self._looped, name))
            loop = ExportedFunction(self.context, extern, name, self._errors)
            self._loop = loop
        return loop if loop is not None and loop.name == name else None

    @property
    def used(self) -> set[str]:
        """The names of the exported functions in use, also that of the loop."""
        return {*self.entries} if self._loop is None else {*self.entries, self._loop.name}

    def _looped(self, name: str) -> Any:
        """Let the shim's loop call the exported function `name`, and return the loop."""
        entry = self.entries.get(name)
        frame_function = self._guest.export(name) if entry is None else entry.extern
        self._shim.set_table(frame.LOOPED, 0, frame_function)
        return self._shim.export(frame.LOOP)

    def _found(self, find: Callable[[], Any]) -> Any:
        """Return an item of the guest. Raises GuestFailed if another thread has closed it."""
        extern = self._store.read(find)
        if extern is None:
            raise GuestFailed(f"{self.program.name} is closed")
        return extern

    def limit_memory(self, size: int) -> bool:
        """
        Let the guest's memory grow to `size` bytes, or to its own limit if that is lower.

        Returns True if `size` is lower.
        """
        allowed = max(0, min(size, self._most))
        if allowed != self._growth:
            self._growth = allowed
            self._store.limit(self._caps(self.program.table_share))
        return allowed < self._most

    @property
    def pages(self) -> int:
        """The size of the guest's memory in pages, 0 once it is freed. Read on any thread."""
        return self._store.read(self._native_memory.pages) or 0

    @property
    def base(self) -> bindings.Address:
        """The address of the guest's memory, which stays the same."""
        return self._native_memory.base

    @property
    def raw_memory(self) -> bindings.Address:
        """The address of the memory's wasmtime_memory_t."""
        return self._native_memory.place

    @property
    def raw_globals(self) -> Sequence[bindings.Address]:
        """The addresses of the globals that can change, each a wasmtime_global_t."""
        return self._globals.places

    def exported(self, name: str) -> Any:
        """Return an export, a wasmtime_extern_t. Raises GuestFailed once the guest is closed."""
        return self._found(partial(self._guest.export, name))

    @property
    def memory_place(self) -> Place:
        """Where the guest's memory lies, and its bytes, none once it is freed."""
        return self.base, self.pages * PAGE

    def copied(self) -> WasmState:
        """Return a copy of the memory and of the globals that can change."""
        return self.saved(lambda _: None)

    def saved(self, admit: Callable[[int], object]) -> WasmState:
        """
        Return such a copy, between two calls; it is not freed meanwhile.

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
        """Have a saved state. Raises MemoryLimitExceeded and TableLimitExceeded."""
        self.fit(len(state.memory), state.tables)
        state.memory.load(self.base)
        self.write_globals(state.globals)
        if state.tables:
            self.write_tables(state.tables)

    def fit(self, size: int, tables: SavedTables) -> None:
        """
        Let the memory have `size` bytes, and tables the elements of saved ones, of any content.

        What has more is made anew, with all of the instance: only so it gets smaller. Addresses
        of exported functions are others then. Raises MemoryLimitExceeded and TableLimitExceeded.
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
        """Return the elements of tables, which can change. Raises StateRefused."""
        return self._tables.read()

    def write_tables(self, tables: SavedTables) -> None:
        """Set the elements of tables, which can change, to the result of `read_tables`."""
        self._tables.write(tables)

    def read_globals(self) -> bytes:
        """Return the values of the globals that can change."""
        return self._globals.read()

    def write_globals(self, values: bytes) -> None:
        """Set the globals that can change, to the result of `read_globals`."""
        self._globals.write(values)

    def become(self, program: CompiledModule, state: Callable[[], WasmState]) -> None:
        """
        Run another module of the same layout, with the memory and the globals of a new instance.

        Raises the errors of a new instance, and then the module stays, with the state that `state`
        returns.
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

    @cached_property
    def _globals(self) -> bindings.Globals:
        kinds = self.program.state.kinds
        externs = [self._guest.export(global_export(number)) for number in range(len(kinds))]
        return bindings.Globals(self.context, externs, kinds)

    @cached_property
    def _tables(self) -> Tables:
        plan, export = self.program.state, self._guest.export
        tables = [export(table_export(number)) for number in range(len(plan.tables))]
        functions = [export(function_export(number)) for number in range(len(plan.functions))]
        return Tables(self.context, plan, tables, functions)

    def _renew(self) -> None:
        """Make the instance anew, in the same place. The guest is in no call."""
        allowed = self._growth
        store = self._limited(self._wasi)
        self._store.replace(store)
        self.context = self._store.context
        self.entries.clear()
        self._loop = None
        vars(self).pop("_globals", None)
        vars(self).pop("_tables", None)
        self._build(self._wasi, virtual=self._is_virtual)
        self.limit_memory(allowed)

    def read(self, what: Callable[[], _Read]) -> _Read | None:
        """Return the result of a function that reads the guest; see `GuestStore.read`."""
        return self._store.read(what)

    def close_files(self) -> None:
        """Close the files of a guest that gets no more calls."""
        if self.program.linkage.wasi:
            self._store.close_files()

    @property
    def is_closed(self) -> bool:
        """True once `close` has begun."""
        return self._store.is_ended

    def close(self) -> None:
        """Free the call in progress, the Store and the column memory. Safe to call twice."""
        self._store.close()
        self.records.release()
        if self._owns_control:
            self._owns_control = False  # first: it must not be freed twice
            self._arena.free(self.control, at.CONTROL_SIZE)

    def _limited(self, wasi: WasiGrant) -> wasmtime.Store:
        """Return a new Store with the limits of the program and the grants of `wasi`."""
        limits = self.program.limits
        self._growth = self._most = max(most_memory(self.program), most_objects(self.program))
        store = wasmtime.Store(self.engine.engine)
        store.set_limits(*self._caps(limits.table_elements))
        store.set_epoch_deadline(_BUILD_TICKS)
        if self.program.linkage.wasi:
            store.set_wasi(config(wasi))
        return store

    def _caps(self, table_elements: int) -> tuple[int, int, int, int, int]:
        """Return the limits of the Store, in the order of `bindings.limit_store`."""
        instances, memories = 4, 1  # shim, guest, WASI shim, stubs
        tables = 1 + self.program.limits.tables  # the shim has one, of one element
        return self._growth, max(1, table_elements), instances, tables, memories

    def _build(self, wasi: WasiGrant, *, virtual: bool) -> None:
        engine, context, linkage = self.engine, self.context, self.program.linkage
        arena = engine.arena
        shim = self._shim = bindings.RawInstance.of(context, engine.shim(self.program.shim_exports))
        shim.set_global("base", "i32", self.control)
        shim.set_global("continuation", "i64", arena.base + self.control + at.CONTINUATION)
        arena.numbers[(self.control + at.CONTINUATION) >> 3] = bindings.STRLEN
        arena.numbers[(self.control + at.CONTINUATION + 8) >> 3] = arena.base + self.control
        memory = shim.export("memory")
        native = bindings.NativeMemory(context, memory)
        if self.program.memory is not None:
            self._reserve(native, self.program.memory.minimum)
        self.memory.move(native.base)  # handlers know it, also those of an instance made anew
        self._native_memory = native
        with engine.linking:
            linker = engine.wasi.linker if linkage.wasi else engine.linker
            bindings.define(linker, context, "arkml", "memory", memory)
            for module, name in linkage.shim:
                extern = shim.export(export_name(module, name))
                bindings.define(linker, context, module, name, extern)
            for index, entry in enumerate(linkage.game):
                extern = shim.export(game_export(index))
                bindings.define(linker, context, entry.module, entry.name, extern)
            if linkage.wasi:
                imported = [name for _, name in linkage.wasi]
                free = free_descriptors(self.program.limits.descriptors, wasi)
                engine.wasi.link(context, shim, imported, free=free, virtual=virtual)
            if self.program.stubs is not None:
                stubs = bindings.RawInstance.linked(context, linker, self.program.stubs)
                for number, stub in enumerate(linkage.stubs):
                    extern = stubs.export(str(number))
                    bindings.define(linker, context, stub.module, stub.name, extern)
            self._guest = bindings.RawInstance.linked(context, linker, self.program.module)
        # Not before: the limit also holds for a table's initial size, which may exceed its share.
        if self.program.table_share != self.program.limits.table_elements:
            self._store.limit(self._caps(self.program.table_share))
        arena.words[(self.control + at.TURN) >> 2] = TURN_TICKS
        self._store.end_turns(arena.base + self.control + at.DEADLINE)
        bindings.set_epoch_deadline(context, TURN_TICKS)

    def _reserve(self, memory: bindings.NativeMemory, pages: int) -> None:
        if pages:
            try:
                memory.grow(pages)
            except wasmtime.WasmtimeError:
                limits, most = self.program.limits, self._growth
                name = "memory_bytes" if most == limits.memory_bytes else "guest_bytes"
                raise MemoryLimitExceeded(
                    f"{self.program.name} needs {pages * PAGE:,} bytes of memory at start,"
                    f" more than the {most:,} that Limits.{name} leaves it"
                ) from None


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
