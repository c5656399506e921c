"""One instance of a module, joined with the services that answer its imports."""

from __future__ import annotations

import logging
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from arkml.abi.codes import ErrorCode
from arkml.base.closing import Unclosed, Unique
from arkml.base.short_reprs import cut_repr
from arkml.base.terminal import listed
from arkml.errors import (
    AbiError,
    EntryPointMissing,
    GuestBusy,
    GuestError,
    GuestFailed,
    GuestMemoryFull,
    MemoryLimitExceeded,
    StateRefused,
    TableLimitExceeded,
    UsageError,
)
from arkml.guests.blocking import Waiting
from arkml.guests.counts import Statistics
from arkml.guests.news import GuestNews
from arkml.guests.snapshot_bytes import Share, SnapshotBytes
from arkml.guests.trace_points import TracePoints
from arkml.limits import Limits
from arkml.policies.demands import PolicyOffer
from arkml.policies.library import PolicyLibrary
from arkml.runtime.account import Account, Usage
from arkml.runtime.bindings import Address
from arkml.runtime.call_guard import CallGuard
from arkml.runtime.columns.region import Region, SavedRows
from arkml.runtime.columns.slabs import Columns, Shape
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.compiler_imports import CompilerImports
from arkml.runtime.engine import Engine
from arkml.runtime.exported_function import ExportedFunction, RawFunction
from arkml.runtime.fiber import Fiber
from arkml.runtime.interrupts import GUARD
from arkml.runtime.linker import Handlers
from arkml.runtime.lockstep import Lockstep
from arkml.runtime.memory import PAGE, GuestMemory
from arkml.runtime.module.description import ModuleKind
from arkml.runtime.sandbox import Sandbox, WasmState, most_memory, most_objects
from arkml.runtime.saved_memory import Place
from arkml.runtime.shim import control_block as at
from arkml.runtime.shim.control_block import Kind
from arkml.runtime.tables import SavedTables, require_tables
from arkml.runtime.wasi.linking import WasiGrant
from arkml.runtime.wasi.shim import OURS
from arkml.runtime.wasi.virtual import MachineWorld, VirtualCalls, World
from arkml.runtime.wasi.waiting_calls import WasiCalls
from arkml.sessions.gateway import RunGateway
from arkml.sessions.handles import U64_LAYOUT
from arkml.sessions.saved_sessions import SavedServices
from arkml.sessions.services import Services
from arkml.sessions.text import LEVELS, logger_name


class SharedResources(NamedTuple):
    """
    The resources that all guests of one thread share.

    Attributes:
        columns: Column memory, in which submitted rows wait.
        library: Library that opens policies.
        lockstep: Owner of the calls in progress.
        call_guard: Guard that admits one call at a time.
        gateway: Access to the runs in which the guests may take part, None without a hive.
        world: Source of clocks and random numbers, None for the machine's.
        unclosed: Warns once if the guests are dropped without `close`; None lets each guest warn by
            itself.
        warned: Kinds of warnings that one of the guests has logged.
        snapshots: Counter of the bytes of snapshots.

    """

    columns: Columns
    library: PolicyLibrary
    gateway: RunGateway | None
    call_guard: CallGuard
    lockstep: Lockstep
    warned: set[str]
    snapshots: SnapshotBytes
    world: World | None = None
    unclosed: Unclosed | None = None


class StartupProgress(NamedTuple):
    """
    How far the startup of a guest has come.

    Attributes:
        is_initialized: True if the initializers have run.
        waits: True if the start function of its language must run before the next call.

    """

    is_initialized: bool
    waits: bool


CompilerState: TypeAlias = tuple[Any, dict[str, float]]
"""Random numbers, None if none were drawn, and timers of `CompilerImports`."""


class InstanceState(NamedTuple):
    """
    A copy of the state of an instance between two calls.

    Attributes:
        wasm: Its memory, globals and tables.
        services: Its handles and sessions.
        rows: Rows that wait for a submit, by the index of their session's record.
        compiler: Random numbers and timers of `CompilerImports`.
        startup: How far its start has come.

    """

    wasm: WasmState
    services: SavedServices
    rows: Mapping[int, SavedRows]
    compiler: CompilerState
    startup: StartupProgress

    @property
    def nbytes(self) -> int:
        """The bytes that the copy takes, without the models of sessions."""
        size = STATE_BYTES + self.wasm.nbytes
        size += self.services.nbytes + bytes_of_rows(self.rows)
        return size + (RANDOM_BYTES if self.compiler is not NO_COMPILER else 0)


def _any_size(size: int) -> None:
    """Raise nothing, as `Instance.require_snapshot` may."""
    del size


def bytes_of_rows(rows: Mapping[int, SavedRows]) -> int:
    """Return the number of bytes of saved rows that wait for a submit."""
    if not rows:  # as between most calls
        return 0
    return sum(len(each.metadata) + sum(map(len, each.columns)) for each in rows.values())


_LEVELS = tuple(LEVELS.values())  # one for all guests

NO_COMPILER: CompilerState = (None, {})
"""What a guest has that has not used `CompilerImports`."""


STATE_BYTES, RANDOM_BYTES = 2_048, 32_768
"""What Python takes for a snapshot beside the bytes in it, and for random numbers: measured."""


class InstanceOwner(Protocol):
    """The owner of instances, which numbers them; instances keep it alive."""

    def forget(self, key: int, usage: Usage) -> object:
        """Forget an instance that was freed; `key` is the key that it was given."""


class Instance(Unique):
    """
    A sandbox, the services that answer its imports, and the fiber that its calls run on.

    Attributes:
        number: A number that is unique among the guests of a host.
        give: Called with the total bytes that the instance wants; raises GuestMemoryFull. None sets
            no limit.
        owner: Told, with `key`, when the instance is closed or dropped.
        failure: The error after which the instance takes no more calls, or None.
        trace: Records or replays the inputs of the guest, or None.

    """

    __slots__ = (  # a guest of a fleet of thousands is small
        "__weakref__", "_compiler", "_final", "_final_usage", "_give", "_given_bytes", "_handlers",
        "_is_freed", "_key", "_lent", "_object_bytes", "_owner", "_sandbox", "_seen_bytes",
        "_snapshots", "_trace", "_unclosed", "_waiting", "_world", "account", "columns", "control",
        "counted_before", "failure", "fiber", "is_closed", "library", "limits",
        "lockstep", "module", "most_memory", "name", "non_finite_features", "number",
        "place", "regions", "services", "warned", "words",
    )  # fmt: skip

    def __init__(
        self,
        engine: Engine,
        module: CompiledModule,
        shared: SharedResources,
        *,
        name: str,
        number: int,
        owner: InstanceOwner,
        key: int,
        wasi: WasiGrant | None = None,
        give: Callable[[int], None] | None = None,
        trace: TracePoints | None = None,
    ) -> None:
        self.name = name
        self.number = number
        self.module = module
        self.failure: GuestError | None = None
        self.is_closed = True  # until there is something to close
        self._lent: tuple[weakref.ref[Any], ...] = ()  # memories that views may still be of
        self._is_freed = True  # likewise; a closing that was cut off leaves a closed one to free
        self.words = engine.arena.words
        self._unclosed = shared.unclosed or Unclosed(f"<Guest {name}>")
        self.columns = shared.columns
        self._owner, self._key = owner, key
        self._give = give
        self._trace = trace
        self._world = world = shared.world
        self.warned: set[str] = shared.warned
        """Kinds of warnings that were logged."""
        self.counted_before: Statistics | None = None
        """Counts of the guest that this one goes on for, None for most."""
        self.non_finite_features = 0
        self._final: Statistics | None = None
        self._final_usage: Usage | None = None
        self._seen_bytes = 0  # when the guest's thread looked last, without requests and snapshots
        self.most_memory = most_memory(module)
        """The bytes to which the memory may grow at most."""
        self._given_bytes = 0  # of those of the host, likewise
        self._snapshots = shared.snapshots
        self._sandbox = sandbox = Sandbox(
            engine,
            module,
            shared.columns,
            shared.lockstep,
            wasi,
            virtual=world is not None or trace is not None,
            memory=None if trace is None else trace.memory(module.limits),
        )
        self._object_bytes = most_objects(module)
        self.control = sandbox.control
        self.lockstep, self.place = sandbox.lockstep, sandbox.place
        waits_inside = bool(sandbox.program.linkage.wasi)
        self.account = Account(sandbox.lockstep, sandbox.place, waits_inside=waits_inside)
        self.library = shared.library
        self.limits = _limits_of(module)
        self.regions = sandbox.records.regions
        """The queue of each session, by the index of its record."""
        try:
            self.services: Services = Services(
                name,
                number,
                limits=module.limits,
                library=shared.library,
                queues=self,
                hives=shared.gateway,
                clock=time.time_ns if world is None else world.time_of_day,
                account=self.account,
                spec=module.info.spec,
            )
            self._waiting = Waiting(self.services)
            self._compiler: CompilerImports | None = None  # until its first call
            self._handlers = Handlers(self)
            self.lockstep.log_levels.add(self.place, self.control, logger_name(name), _LEVELS)
            self.fiber: Fiber = (Fiber if trace is None else trace.fiber)(
                sandbox,
                self.account,
                shared.call_guard,
                self._handlers,
                self._waiting,
                name,
            )
        except BaseException:
            sandbox.close()
            raise
        limits = _Limits(self)
        sandbox.records.require = self.account.limits = limits
        shared.library.workspace.require_bytes[number] = limits
        self._is_freed = self.is_closed = False

    @property
    def state(self) -> str:
        """The state of the instance: "closed", "failed" or "ready"."""
        return "closed" if self.is_closed else "failed" if self.failure else "ready"

    def entry(self, function: str) -> ExportedFunction:
        """Return the exported function; raises EntryPointMissing."""
        if (entry := self._sandbox.entry(function)) is None:
            raise self.missing(function)
        return entry

    def function(self, function: str) -> RawFunction:
        """Return the raw exported function for calls of a fleet. Raises EntryPointMissing."""
        if (raw := self._sandbox.function(function)) is None:
            raise self.missing(function)
        return raw

    def missing(self, function: str) -> EntryPointMissing:
        """Return the error for a function that the guest does not export."""
        exported = listed(self.module.functions)
        return EntryPointMissing(
            f"{self.name} exports no function {cut_repr(function)}; it exports {exported}"
        )

    @property
    def news(self) -> GuestNews:
        """Notes of the shim for the host: refused imports and values that are not finite."""
        return GuestNews(self._sandbox, self._handlers)

    @property
    def is_tight(self) -> bool:
        """
        True if the guest's other bytes keep its memory from growing to the memory's own limit.
        """
        return self.place in self.lockstep.tight

    @property
    def statistics(self) -> Statistics:
        """Counts since the instance was made; after `close` the final counts."""
        counted = None if self._final else self._sandbox.read(self._count)
        return counted or self._final or Statistics()

    @property
    def usage(self) -> Usage:
        """Time since the instance was made, and memory at present; after `close` time only."""
        if self._final_usage is not None:
            return self._final_usage
        settle = self.lockstep.settle()
        if settle is not None:
            settle()
        memory = self._sandbox.pages * PAGE
        usage = self.account.usage({"memory_bytes": memory, **self._other_sizes()})
        return self._final_usage or usage  # another thread may have closed it meanwhile

    def require_bytes(self, size: int) -> None:
        """Raise GuestMemoryFull if `size` more bytes would exceed the limit on all of its bytes."""
        memory = self._sandbox.pages * PAGE
        with self.services.request_lock:
            self._require(memory, size + self._other_bytes())

    def require_snapshot(self, size: int) -> None:
        """Raise GuestMemoryFull if one more snapshot, of `size` bytes, would exceed the limit."""
        if self._seen_bytes and self._give is None:
            most = self.most_memory + self._seen_bytes + self._unseen_bytes() + size
            if most <= self.limits.guest_bytes:  # however much the memory grows
                return
        self.require_bytes(size)

    def _require(self, memory: int, others: int) -> None:
        if memory + others > self.limits.guest_bytes:
            raise GuestMemoryFull(
                f"{self.name} has {memory} bytes of memory and would have {others} beside it,"
                f" over the limit of {self.limits.guest_bytes} (Limits.guest_bytes)"
            )
        self._seen_bytes = memory + others - self._unseen_bytes()
        self._limit_memory(others)

    def _unseen_bytes(self) -> int:
        """Return the bytes that may change on any thread: bytes of requests and snapshots."""
        return self.services.request_bytes + self._snapshots.held(self.number)

    def admits(self, size: int) -> bool:
        """
        Return whether a result of `size` bytes fits into the limits, and reserve these bytes.

        Called on any thread, with the lock of the requests. It uses the sizes that the guest's own
        thread saw last, for example when the request began, because no other thread may look at a
        memory in use.
        """
        if self.is_closed:
            return False
        if self._seen_bytes + self._unseen_bytes() + size > self.limits.guest_bytes:
            return False
        if self._give is not None:
            try:
                self._give(self._given_bytes + size)
            except GuestMemoryFull:
                return False
            self._given_bytes += size
        self.lockstep.tight.add(self.place)  # the next call limits the memory to what is left
        return True

    def let_grow(self) -> None:
        """Let wasm memory grow by the bytes that the guest's other data leave free."""
        with self.services.request_lock:
            self._limit_memory(self._other_bytes())

    def _limit_memory(self, others: int) -> None:
        """Let the memory grow to the guest's limit less `others` bytes. Raises GuestMemoryFull."""
        left = self.limits.guest_bytes - others
        if self._give is not None:
            given = others + min(left, self.most_memory)
            self._give(given)
            self._given_bytes = given
        if self._trace is not None:
            left = self._trace.limited(left)
        is_tight = self._sandbox.limit_memory(left)
        if not is_tight and self._give is None:
            self.lockstep.tight.discard(self.place)
        elif not self.is_tight:  # what it has less is given back
            self.lockstep.tight.add(self.place)
            self.lockstep.touched.add(self.place)  # a snapshot may have been dropped meanwhile

    def _other_bytes(self) -> int:
        """Return the bytes that count toward the guest's limit, without its wasm memory."""
        return sum(self._other_sizes().values())

    def _other_sizes(self) -> dict[str, int]:
        """Return these bytes by their names in `Usage`, such as `column_bytes`."""
        services, workspace = self.services, self.library.workspace
        kept_rows, kept_experiments = self.account.kept_bytes
        return {
            "object_bytes": self._object_bytes,
            "column_bytes": self._sandbox.records.used,
            "session_bytes": services.session_bytes,
            "agent_bytes": workspace.held(self.number) + kept_rows,
            "request_bytes": services.request_bytes + kept_experiments,
            "vector_bytes": services.vector_bytes,
            "work_bytes": workspace.work_bytes(self.number),
            "snapshot_bytes": self._snapshots.held(self.number),
        }

    def use(self, offer: PolicyOffer) -> None:
        """Switch to the policies of an offer, between two calls; see `Services.use`."""
        self.services.use(offer, is_of_guest=self.library.takes_snapshots)
        self.columns.version += 1  # plans of a fleet name the policies

    def close(self) -> None:
        """Free the instance. Raises GuestBusy while a call is in progress. Safe to call twice."""
        if self._is_freed:
            return
        with GUARD.held_back(), self.fiber.call_guard.kept(self.name):
            self.free()

    def give_up(self) -> None:
        """Free the instance; if its memory is viewed, the last view does so."""
        try:
            self.close()
        except GuestBusy:
            self.is_closed = True

    def free(self) -> None:
        """
        Free the instance as `close` does; the caller holds the call guard and holds back Ctrl-C.
        """
        if not self._is_freed:  # by another thread meanwhile
            self.require_unlent()
            self._release()

    def require_unlent(self) -> None:
        """Raise GuestBusy while a view of the memory is in use."""
        if not self._lent:
            return
        self._lent = tuple(lent for lent in self._lent if lent() is not None)
        if self._lent:
            raise GuestBusy(
                f"a view of the memory of {self.name} is in use: close the guest behind its block,"
                " when no part of the view is left"
            )

    def close_files(self) -> None:
        """Close the files of a guest that has failed."""
        self._sandbox.close_files()

    def printed_panic(self) -> str | None:
        """Return the text of a panic that this call wrote to standard error, or None."""
        wasi = self._waiting.wasi
        return None if wasi is None else wasi.printed_panic()

    def forget_printed(self) -> None:
        """Forget what the guest wrote to standard error, before its next call."""
        if self._waiting.wasi is not None:
            self._waiting.wasi.forget_printed()

    def refusal(self) -> GuestFailed | None:
        """Return the error for a call of an instance that is closed or failed, else None."""
        if self.is_closed:
            return GuestFailed(f"{self.name} is closed")
        if self.failure is None:
            return None
        error = GuestFailed(f"{self.name} failed before: {self.failure}")
        error.__cause__ = self.failure
        return error

    def __del__(self) -> None:
        """
        Free an instance that was dropped without `close`, with a ResourceWarning.

        It is the one finalizer of its call, its Store and its column memory: see `GuestStore`. In
        a cycle others of its parts may have been finalized before.
        """
        if not (sys.is_finalizing() or getattr(self, "_is_freed", True)):
            was_closed = self.is_closed
            self._release()  # takes no lock that the interrupted code may hold (decision 13)
            if not was_closed:
                self._unclosed.warn(self)

    def _release(self) -> None:
        """
        Free native parts: the call in progress, the Store, the column memory.

        A signal handler may raise at any line. Calls that would enter the guest are given up before
        the first part is freed, and the next `close` frees any remaining parts.
        """
        self.fiber.call_guard.lost += 1
        self.is_closed = True
        self.fiber.refuse_calls()
        if self._final is None:
            self._final = self._count()
        if self._final_usage is None:
            self._final_usage = self.usage.without_memory()
        try:
            if not self._sandbox.is_closed:  # else its place and its memory may be another's
                self.fiber.drop()
                self.services.close()
        finally:
            self._sandbox.close()
        self.library.workspace.leave(self.number)
        if self._trace is not None:
            self._trace.ended()
        self._owner.forget(self._key, self._final_usage)
        self._is_freed = True

    def require_savable(self) -> None:
        """Raise StateRefused, GuestFailed or GuestBusy if the state cannot be copied now."""
        self.require_whole()
        if obstacle := self.module.state.obstacle:
            raise StateRefused(f"{self.name} cannot be saved: {obstacle}")

    def save(self, startup: StartupProgress, *, is_charged: bool = True) -> InstanceState:
        """
        Return a copy of the state between two calls.

        The copy must fit into the guest's limit on bytes, unless `is_charged` is False. Raises
        StateRefused for a state that cannot be copied, and GuestMemoryFull.
        """
        self.require_savable()
        services = self.services.save()
        others, require = services.nbytes, self.require_snapshot
        admit = (lambda size: require(size + others)) if is_charged else _any_size
        return InstanceState(
            self._sandbox.saved(admit),
            services,
            self.save_rows(),
            self.save_compiler(),
            startup,
        )

    def save_rows(self) -> dict[int, SavedRows]:
        """Return the rows that wait for a submit, by the index of their session's record."""
        return {index: rows for index, region in self.regions.items() if (rows := region.save())}

    def save_compiler(self) -> CompilerState:
        """Return the random numbers and timers of `CompilerImports`."""
        return NO_COMPILER if self._compiler is None else self._compiler.save()

    def require_loadable(
        self, size: int, tables: SavedTables, services: SavedServices | None
    ) -> None:
        """
        Raise StateRefused for a state that does not fit the instance, as far as can be known.

        `size` is the size of the saved memory in bytes; `services` of None stands for the present
        ones. Raises GuestFailed for an instance that has failed, and GuestBusy for one that is in a
        call or whose memory is viewed.
        """
        self.require_whole()
        self.require_unlent()
        if size > self.most_memory:
            raise StateRefused(
                f"{self.name}: the state has {size:,} bytes of memory, and the limits allow"
                f" {self.most_memory:,}"
            )
        if tables or self.module.state.tables:
            require_tables(tables, self.module.state, self.module.table_share)
        if services is not None:
            self.services.require_loadable(services)

    def begin_load(self, size: int, tables: SavedTables, services: SavedServices) -> None:
        """
        Make room for a state that `require_loadable` has accepted.

        Raises StateRefused if the instance runs into a limit; it then has a part of the state.
        """
        has_others = self.services.load(services)
        if not has_others and size == self.memory_place[1] and not tables:
            return
        try:
            self.let_grow()
            self._sandbox.fit(size, tables)
        except (AbiError, MemoryLimitExceeded, TableLimitExceeded) as error:
            raise StateRefused(f"{self.name}: {error}") from error

    def load(self, state: InstanceState) -> None:
        """
        Load a state that `require_loadable` has accepted.

        Raises StateRefused if the instance runs into a limit; it then has a part of the state.
        """
        memory, values, tables = state.wasm
        self.begin_load(len(memory), tables, state.services)
        memory.load(self._sandbox.base)
        self._sandbox.write_globals(values)
        if tables:
            self._sandbox.write_tables(tables)
        self.fiber.call_guard.lost += 1  # addresses that a fleet knows may be others now
        self.end_load(state.rows, state.compiler)

    def end_load(self, rows: Mapping[int, SavedRows], compiler: CompilerState) -> None:
        """Load the rest of a state, after its memory, globals and tables. Raises StateRefused."""
        self.forget_call()
        self.load_rows(rows)
        self.load_compiler(compiler)
        self.note_load()

    def load_rows(self, rows: Mapping[int, SavedRows]) -> None:
        """Replace the rows that wait for a submit by saved ones. Raises StateRefused."""
        try:
            for index, region in self.regions.items():
                region.load(rows.get(index))
        except (AbiError, ValueError) as error:  # the latter for columns of another width
            raise StateRefused(f"{self.name}: {error}") from error

    def load_compiler(self, compiler: CompilerState) -> None:
        """Restore saved random numbers and timers of `CompilerImports`."""
        if compiler != NO_COMPILER or self._compiler is not None:
            self._compiler_imports().load(*compiler)

    def note_load(self) -> None:
        """Note in the trace, if there is one, that another state was loaded."""
        if self._trace is not None:
            self._trace.restored()

    @property
    def may_use_compiler(self) -> bool:
        """True if the module imports functions of `CompilerImports`."""
        return any(each.module == "env" for each in self.module.info.imports)

    @property
    def is_traced(self) -> bool:
        """True if the inputs of the guest are recorded, or come from a record."""
        return self._trace is not None

    @property
    def trace_path(self) -> Path | None:
        """The file in which the guest is recorded, None if it is not."""
        return None if self._trace is None else self._trace.path

    def replaced(self) -> None:
        """
        Note in the trace that an instance of another module replaces this one, which will close.
        """
        if self._trace is not None:
            self._trace.replaced()

    def copied(self) -> WasmState | None:
        """
        Return a copy of memory, globals and tables for a trace; None if they cannot be copied.
        """
        if self.module.state.obstacle:
            return None
        try:
            return self._sandbox.copied()
        except StateRefused:  # of a table
            return None

    def go_back(self, wasm: WasmState) -> None:
        """Restore memory, globals and tables between two calls; the caller restores the rest."""
        self._sandbox.go_back(wasm)
        self.fiber.call_guard.lost += 1  # addresses that a fleet knows may be others now
        self.forget_call()

    def forget_call(self) -> None:
        """Forget the results of the previous call, and the imports that were refused in it."""
        self.services.begin_call()
        self.news.forget_call()

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox of the instance, for readers of many guests at once."""
        return self._sandbox

    @property
    def memory_place(self) -> Place:
        """Address and size of the memory in the host's address space; no bytes once it is freed."""
        return self._sandbox.memory_place

    def suspended_memory(self) -> GuestMemory:
        """Return the memory, in its present size, while the guest is suspended in a call."""
        return self._sandbox.memory

    def hear_all(self) -> None:
        """Forward the guest's log lines of every level to the host."""
        self.lockstep.log_levels.remove(self.place)
        self.words[(self.control + at.LOGGED) >> 2] = 0

    def become(self, module: CompiledModule, state: WasmState | None = None) -> None:
        """
        Continue with another module of the same layout; the caller holds the call guard.

        The memory is that of `state`, by default a copy of the present memory.
        """
        wasm = self._sandbox.copied() if state is None else state
        self.renew(module, lambda: wasm)
        self._sandbox.go_back(wasm)

    def renew(self, module: CompiledModule, state: Callable[[], WasmState]) -> None:
        """
        Make a new instance of another module with the same layout; the caller holds the call guard.

        Handles and sessions stay. Raises the errors of a new instance: then the old module stays,
        with the state that `state` returns. If neither module can be instantiated, this instance is
        freed.
        """
        self.require_whole()
        self.require_unlent()
        if self._trace is not None:
            self._trace.became(module)
        try:
            self._sandbox.become(module, state)
        except BaseException:
            if not self._sandbox.is_built:
                self._release()
            raise
        self.module = module
        self.most_memory = most_memory(module)
        self.fiber.call_guard.lost += 1  # calls of a fleet that are kept for the next frame

    def keep(self, snapshot: object, state: InstanceState) -> None:
        """Charge the guest for the bytes of a saved state for as long as its snapshot lives."""
        models = ((self.number, state.services.models),)
        share = Share((self.number,), (self.place,), (state.nbytes,), models)
        self._snapshots.keep(snapshot, share)

    def require_whole(self) -> None:
        """Raise GuestFailed for a guest that failed, and GuestBusy for one suspended in a call."""
        if (refusal := self.refusal()) is not None:
            raise refusal
        if self.fiber.is_parked:
            raise GuestBusy(f"{self.name} waits in a submit for its answer: its state is in a call")

    @contextmanager
    def memory(self) -> Iterator[GuestMemory]:
        """Yield the memory for reading and writing; meanwhile no call or `close` is admitted."""
        with self.fiber.call_guard.kept(self.name):
            if self.is_closed and (refusal := self.refusal()):
                raise refusal
            memory = self._sandbox.memory
            memory.pages = self._sandbox.pages
            yield memory

    @contextmanager
    def view(self) -> Iterator[memoryview]:
        """Yield a read-only view of the memory; meanwhile the instance is not freed."""
        with self.memory() as memory:
            whole: Any = memory.whole()
            self._lent += (weakref.ref(whole),)
        whole.owner = self  # a part of the view may outlive the block
        lent = weakref.ref(whole)
        view = memoryview(whole).cast("B").toreadonly() if len(whole) else memoryview(b"")
        del whole
        try:
            yield view
        finally:
            view.release()
        if lent() is not None:
            raise UsageError(
                f"a part of the view of {self.name} is left behind its block, as a slice or an"
                " array: copy what is to stay, as bytes(view[64:72])"
            )

    def exported(self, name: str) -> tuple[Address, Any]:
        """Return the context of the Store and an export (wasmtime_extern_t) for functions in C."""
        return self._sandbox.context, self._sandbox.exported(name)

    def _count(self) -> Statistics:
        words, control = self.words, self.control
        counted = self._handlers.errors
        errors = {code.name: count for code, count in counted.items()}
        statistics = Statistics(
            non_finite_features=self.non_finite_features,
            non_finite_actions=self.services.non_finite_actions,
        )
        statistics.errors.update(errors)
        statistics.limits.update(self._handlers.limits)
        statistics.refusals.update(self.news.counts())
        statistics.submits = words[(control + at.SUBMITS) >> 2]
        statistics.rows = words[(control + at.ANSWERED_ROWS) >> 2]
        statistics.non_finite_actions += words[(control + at.BAD_ACTIONS) >> 2]
        start = (control + at.ERRORS) >> 2
        for code in ErrorCode:
            if count := words[start + code]:
                statistics.errors[code.name] += count
        return statistics if self.counted_before is None else self.counted_before + statistics

    def handler(self, module: str) -> object:
        """Return an object with the handlers of an import module."""
        if module == OURS:
            return self._waiting.wasi or self._begin_wasi()
        return self._compiler_imports() if module == "env" else self.services.handler(module)

    def _begin_wasi(self) -> WasiCalls:
        grant, memory, world = self._sandbox.wasi, self._sandbox.memory, self._world
        if world is None and self._trace is None:
            self._waiting.wasi = WasiCalls(grant, memory)
        else:
            self._waiting.wasi = VirtualCalls(grant, memory, world or MachineWorld())
        return self._waiting.wasi

    def _compiler_imports(self) -> CompilerImports:
        if self._compiler is None:
            services, memory, seed = self.services, self._sandbox.memory, self.library.seed
            self._compiler = CompilerImports(
                memory,
                services.register_panic,
                services.log.say,
                self._world,
                f"{seed} {self.number}",
            )
        return self._compiler

    def open_queue(
        self, handle: int, *, training: bool, num_features: int, num_actions: int, key: int
    ) -> Region:
        """Make the queue of a new session and publish its address to the shim."""
        columns, trace = self.columns, self._trace
        index = U64_LAYOUT.index(handle)
        session = Shape(num_features, num_actions, training, 1)
        shape = session.of(columns.first_rows(session))
        released = None if trace is None else trace.closed
        region = Region(columns, self._sandbox.records, index, shape, key, released=released)
        region.publish(handle, Kind.TRAINING if training else Kind.INFERENCE)
        if trace is not None:
            trace.opened(index, handle, session)
        return region

    def offer(self, data: bytes) -> None:
        """
        Keep bytes that a call returned as a vector, until the guest takes them.

        Raises GuestMemoryFull.
        """
        self.services.vectors.keep_pending(data)

    def admits_line(self, text: str) -> int:
        """Return how many log lines a text counts as, 0 if it is dropped; see `GuestLog.admits`."""
        return self.services.log.admits(text)

    def has_warned(self, kind: str) -> bool:
        """Return whether a warning of a kind was logged among the guests that share resources."""
        return kind in self.warned

    def warn_once(self, kind: str, text: str) -> None:
        """Log `text` as a warning, once for each `kind` among the guests that share resources."""
        if not self.has_warned(kind):
            self.warned.add(kind)
            self.services.log.say(logging.WARNING, text)


def _limits_of(module: CompiledModule) -> Limits:
    """Return the limits of an instance: a cmdlet or WASI command may wait for any time."""
    if module.info.kind in (ModuleKind.CMDLET, ModuleKind.WASI_COMMAND):
        return replace(module.limits, call_seconds=None)
    return module.limits


class _Limits:
    """The limits on the bytes of an instance, for objects that do not keep it alive."""

    __slots__ = ("_instance",)

    def __init__(self, instance: Instance) -> None:
        self._instance = weakref.ref(instance)

    def __call__(self, size: int, /) -> None:
        """Call `Instance.require_bytes`."""
        if (instance := self._instance()) is not None:
            instance.require_bytes(size)

    def admits(self, size: int) -> bool:
        """Call `Instance.admits`; False once the instance is gone."""
        return (instance := self._instance()) is not None and instance.admits(size)
