"""A loaded guest and its entry points."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from arkml.base.closing import Closing, Unique
from arkml.base.sealed import Sealed
from arkml.base.short_reprs import cut_repr
from arkml.base.texts import utf8
from arkml.errors import (
    CmdletFailed,
    EntryPointMissing,
    GuestError,
    GuestExit,
    GuestFailed,
    GuestMemoryFull,
    ReloadUndone,
    StateRefused,
    UsageError,
)
from arkml.guests.call_loop import CallLoop, Reply
from arkml.guests.counts import Statistics
from arkml.guests.instance import InstanceState, StartupProgress
from arkml.guests.reloading import Reloaded, ReloadTrial, Remake, require_called, way_of
from arkml.guests.snapshots import FleetSnapshot, GuestSnapshot, require_same_module
from arkml.guests.state_files import is_state_file
from arkml.limits import RUN_SECONDS, Budget, start_budget
from arkml.runtime.account import Usage
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.exported_function import Number
from arkml.runtime.interrupts import GUARD
from arkml.runtime.memory import BytesLike, address_of, bytes_of, size_of
from arkml.runtime.module.description import ModuleInfo
from arkml.runtime.module.startup import COMMAND

_T = TypeVar("_T")
_STARTUPS = {pair: StartupProgress(*pair) for pair in product((False, True), repeat=2)}
_RESERVED = ("ark_", "__")  # a host or a language calls them, before a command too
INITIALIZERS = ("ark_register_panic_hook", "ark_initialize")
SEED_EXPORT = "arkml_seed"
"""The export that takes the seed of an environment, an i64."""


class Guest(Sealed, Unique, Closing):
    """
    One sandboxed instance of a module.

    A guest takes one call at a time: a second call, from any thread or from inside the first,
    raises GuestBusy. A guest that trapped, ran out of time or was canceled has failed: `failure`
    holds the error, its handles are freed, and every later call raises GuestFailed.

    Methods that run the guest take a `budget`: the seconds that may be charged to the guest for
    this call. The charge covers its wasm and the work of the host on its behalf, and leaves out
    policies of the embedder and waits. The default is `Limits.run_seconds`. None lifts this limit
    and `Limits.call_seconds`.
    """

    _is_read_only = True

    def __init__(self, calls: CallLoop, remake: Remake | None = None, label: int = 0) -> None:
        self._calls = calls
        self._label = label
        self._instance = calls.instance
        self._remake = remake
        self._trial: ReloadTrial | None = None
        self._waits_for_start = calls.instance.module.info.startup.deferred is not None

    def __repr__(self) -> str:
        return f"<Guest {self.name} {self._instance.state}>"

    @property
    def name(self) -> str:
        """
        Name of the guest in messages, such as `npc.wasm`; in a fleet with a number, `npc.wasm#3`.
        """
        return self._instance.name

    @property
    def module(self) -> CompiledModule:
        """The compiled module of this instance."""
        return self._instance.module

    @property
    def info(self) -> ModuleInfo:
        """Description of the module: its kind, entry points, imports, exports, required APIs."""
        return self._instance.module.info

    @property
    def failure(self) -> GuestError | None:
        """The error that ended the guest, or None while it can be called."""
        return self._instance.failure

    @property
    def statistics(self) -> Statistics:
        """Counts of submits, rows, refused calls and values that were not finite, since loading."""
        return self._instance.statistics

    @property
    def account(self) -> Usage:
        """Time since loading and present memory charged to the guest, by kind."""
        return self._instance.usage

    @property
    def live_handles(self) -> int:
        """Number of sessions, models, loads and futures that the guest has not dropped yet."""
        services = self._instance.services
        return services.live_handles + services.live_futures

    @property
    def return_slice(self) -> bytes | None:
        """Bytes that the last call gave to `core__return_slice`, or None."""
        return self._instance.services.returned

    def call(self, function: str, *arguments: Number, budget: Budget = RUN_SECONDS) -> Any:
        """
        Call an exported function and return its result.

        Args:
            function: Name of the export, such as "ark_applet_update".
            arguments: Numbers, one for each parameter of the function.
            budget: Seconds that may be charged to the guest, None for no limit; see `Guest`.

        Returns:
            The result: a float or a signed integer, a tuple of several results, or None.

        Raises:
            GuestBusy: The guest is in a call already.
            GuestFailed: The guest failed in an earlier call.
            EntryPointMissing: The module does not export the function.
            UsageError: The arguments do not fit the function.
            GuestTrap: The guest trapped.
            GuestTimeout: The guest used up its budget.
            GuestExit: The guest called `proc_exit`.
            KeyboardInterrupt: Ctrl-C came; the guest has failed.

        Example:
            total = guest.call("add", 3, -5, budget=0.1)

        """
        if type(function) is not str:
            require_function(function)
        if self._waits_for_start:
            self._start_before(function, budget)
        if self._trial is not None:
            return self._tried(lambda: self._calls.call(function, arguments, budget))
        return self._calls.call(function, arguments, budget)

    async def call_async(
        self, function: str, *arguments: Number, budget: Budget = RUN_SECONDS
    ) -> Any:
        """
        Call an exported function while other tasks of the event loop run.

        Other tasks get a turn whenever the guest waits, and after each 10 ms of its run time.

        Args:
            function: Name of the export.
            arguments: Numbers, one for each parameter of the function.
            budget: Seconds that may be charged to the guest, None for no limit; see `Guest`.

        Returns:
            The result, as for `call`.

        Raises:
            GuestError: The call failed, as for `call`.
            CancelledError: The task was canceled (an error of asyncio); the guest has failed.

        Example:
            async def play(guests):
                await asyncio.gather(*(guest.call_async("ark_applet_update") for guest in guests))

        """
        require_function(function)
        if self._waits_for_start and (start := self._start_of(function)) is not None:
            limits = self._instance.limits
            await self._calls.call_async(start, (), start_budget(limits, budget))
        try:
            result = await self._calls.call_async(function, arguments, budget)
        except GuestError as error:
            self._undo_for(error)
            raise
        self._count_trial()
        return result

    def cancel(self) -> None:
        """
        Make the call in progress raise GuestCancelled when it next yields. Safe from any thread.
        """
        self._calls.fiber.call_guard.cancel()

    def initialize(self, *, budget: Budget = RUN_SECONDS) -> None:
        """
        Run the start function and the initializers that the module exports, once.

        By default each initializer may take `Limits.start_seconds`, or `Limits.run_seconds` if that
        is more.
        """
        if self._calls.is_initialized:
            return
        budget = start_budget(self._instance.limits, budget)
        for name in initializers(self.module):
            self._calls.call(name, (), budget)
        self._calls.is_initialized = True

    def update(self, *, budget: Budget = RUN_SECONDS) -> None:
        """Run one frame of an applet: call `ark_applet_update`."""
        if self._trial is not None:
            self._tried(lambda: self._calls.call("ark_applet_update", (), budget))
            return
        self._calls.call("ark_applet_update", (), budget)

    def run_cmdlet(
        self, arguments: str | Sequence[str] = "", *, budget: Budget = RUN_SECONDS
    ) -> bytes:
        """
        Run a cmdlet with its arguments.

        Args:
            arguments: A sequence of texts, such as `["--map", "arena"]`, or one text that separates
                the arguments by single spaces.
            budget: Seconds that may be charged to the guest, None for no limit; see `Guest`.

        Returns:
            The bytes that the cmdlet passed to `return_slice`.

        Raises:
            CmdletFailed: The status of the cmdlet is not 0.
            UsageError: An argument of a sequence is empty or holds a space, at which guests split,
                or a text holds half of a surrogate pair, which UTF-8 cannot encode.

        """
        reply = self.invoke("ark_cmdlet_run", _joined(arguments), budget=budget)
        if reply.status:
            text = reply.data.decode("utf-8", "replace") or "it gave no message"
            raise CmdletFailed(
                f"{self.name} failed with status {reply.status}: {text}", status=reply.status
            )
        return reply.data

    def help(self) -> str:
        """Return the help text of a cmdlet. Raises EntryPointMissing if it has none."""
        names = ("ark_cmdlet_help", "ark_wasi_cmdlet_help")
        name = next((name for name in names if name in self.module.functions), None)
        if name is None:
            raise EntryPointMissing(f"{self.name} has no help: it exports no ark_cmdlet_help")
        self.call(name)
        return (self.return_slice or b"").decode("utf-8", "replace")

    def run_command(self, *, budget: Budget = None) -> int:
        """
        Run a WASI command and return its exit status.

        A command that has exited cannot be run again. Raises the errors of `call`.
        """
        if isinstance(self.failure, GuestExit):
            raise GuestFailed(
                f"{self.name} has exited with status {self.failure.status}: load it again to run it"
            ) from self.failure
        self._waits_for_start = False
        self._calls.is_command = True
        try:
            self._calls.call(COMMAND, (), budget)
        except GuestExit as leaving:
            return leaving.status
        return 0

    def invoke(
        self, function: str, data: BytesLike = b"", *, budget: Budget = RUN_SECONDS
    ) -> Reply:
        """
        Call a function that takes bytes: `(ptr, len) -> status`.

        Args:
            function: Name of the export.
            data: The input. It lies in memory from `ark_alloc` while the function runs.
            budget: Seconds that may be charged to the guest, None for no limit; see `Guest`.

        Returns:
            The status, and the bytes that the function passed to `return_slice`.

        Raises:
            EntryPointMissing: The module does not export the function, or exports no allocator
                although there are bytes to pass.

        Example:
            reply = guest.invoke("plan_path", b"3 4 7 1")
            print(reply.status, reply.data)

        """
        require_function(function)
        if self._waits_for_start:
            self._start_before(function, budget)
        content = bytes_of(data)
        return self._tried(lambda: self._calls.invoke(function, content, budget))

    def request(self, data: BytesLike, *, budget: Budget = RUN_SECONDS) -> bytes:
        """
        Send a request to a servlet and return its answer.

        Raises CmdletFailed if the status is not 0.
        """
        return self._successful("ark_servlet_request", data, budget)

    def persist(self) -> bytes:
        """Return the guest's state, for `restore`, as its own `ark_state_persist` writes it."""
        if "ark_state_persist" not in self.module.functions:
            raise EntryPointMissing(f"{self.name} exports no ark_state_persist")
        status = self.call("ark_state_persist")
        if status:
            raise CmdletFailed(f"{self.name} could not persist: code {status}", status=status)
        return self.return_slice or b""

    def snapshot(self) -> GuestSnapshot:
        """
        Return a copy of the whole state of the guest, for `restore`; no code of the guest runs.

        The copy counts in the guest's bytes for as long as it lives (`account.snapshot_bytes`).

        Raises:
            GuestBusy: The guest is in a call.
            GuestFailed: The guest has failed.
            StateRefused: The guest has something that cannot be copied: a model that is being
                loaded, changing tables of other types than funcref and externref, or objects that
                wasmtime collects.
            GuestMemoryFull: With this snapshot the guest would be over `Limits.guest_bytes`.

        """
        module = self.module
        with self._calls.fiber.call_guard.kept(self.name):
            state = self._instance.save(startup_of(self))
            saved = GuestSnapshot(module.digest, self.name, module.state.kinds, state)
            self._instance.keep(saved, state)
            return saved

    def restore(self, state: GuestSnapshot | BytesLike) -> None:
        """
        Return the guest to a state: a result of `snapshot`, or the bytes that `persist` returned.

        With a snapshot no code of the guest runs: its next call is the one that followed the
        snapshot. It may be of another guest of the same module, and read from a file. The bytes of
        `persist` are given to the guest's own `ark_state_restore`.

        Raises:
            GuestBusy: The guest is in a call, or its memory is viewed.
            GuestFailed: The guest has failed: load another one, and restore that.
            StateRefused: The state is of another module, over the limits, or has a session of a run
                that the guest does not have. Nothing has changed, unless the guest ran into a limit
                while it got the state: then it has failed.
            UsageError: The state is a fleet's, or the bytes of a snapshot's file, which
                `GuestSnapshot.load` reads.

        """
        if isinstance(state, FleetSnapshot):
            raise UsageError(f"state is {state!r}: a guest takes the result of Guest.snapshot")
        if not isinstance(state, GuestSnapshot):
            if isinstance(state, str | os.PathLike):
                raise UsageError(
                    f"state is {cut_repr(state)}: a guest takes the result of Guest.snapshot, which"
                    " GuestSnapshot.load reads from a file, or the bytes of persist"
                )
            if is_state_file(state):  # the guest's own code could only misread it
                raise UsageError(
                    "state is the bytes of a snapshot: give restore what"
                    " GuestSnapshot.load makes of them"
                )
            self._successful("ark_state_restore", state, RUN_SECONDS)
            return
        require_same_module(state, self.module)
        with GUARD.held_back(), self._calls.fiber.call_guard.kept(self.name):
            self._require_loadable(state.state)
            load_state(self, state.state)

    def reload(self, source: str | os.PathLike[str] | BytesLike | CompiledModule) -> Reloaded:
        """
        Continue with a rebuilt module from the next call on; the guest stays the same object.

        The state is carried over by `ark_state_persist` and `ark_state_restore` if both modules
        export them. Otherwise memory, handles and sessions stay as they are if only code has
        changed: data segments, globals, exports, imports and tables must be the same, and the new
        code must still change the tables that the old code changed. Otherwise the module begins
        anew.

        Args:
            source: The path or the bytes of the module, or a compiled one: compiling takes time,
                and may be done on another thread before.

        Returns:
            How the state was carried over.

        Raises:
            ModuleError: The module is refused, or lacks a function by which the guest was called;
                nothing has changed.
            GuestError: Its initializers failed, or it did not take the state; nothing has changed.
            GuestBusy: The guest is in a call, or its memory is viewed.
            UsageError: The guest is an environment's or a trial's: these make new guests.

        Example:
            print(guest.reload("npc.wasm").value)  # kept

        """
        after = self.compile_for_reload(source)
        self._instance.require_unlent()
        self._end_trial()
        way = way_of(self.module, after)
        if way is Reloaded.KEPT and not self._keep_state(after):
            way = Reloaded.ANEW
        if way is not Reloaded.KEPT:
            self._replace_by(after, way)
        return way

    def compile_for_reload(
        self, source: str | os.PathLike[str] | BytesLike | CompiledModule
    ) -> CompiledModule:
        """Compile a module for `reload`. Raises ModuleError and UsageError."""
        if self._remake is None:
            raise UsageError(f"{self.name} is not the embedder's own: it cannot be reloaded")
        after = self._remake.compile(source)
        require_called(self.module, after, self._instance.sandbox.used - helpers(self.module))
        return after

    def _require_loadable(self, state: InstanceState) -> None:
        """Raise StateRefused, GuestBusy or GuestFailed unless the guest can have a state."""
        wasm = state.wasm
        self._instance.require_loadable(len(wasm.memory), wasm.tables, state.services)

    def _keep_state(self, after: CompiledModule) -> bool:
        """Go on with a module of the same layout; return False if the state cannot be copied."""
        with self._calls.fiber.call_guard.kept(self.name):
            try:
                state = self._instance.save(startup_of(self))
            except (StateRefused, GuestMemoryFull):
                return False
            self._renew(after, lambda: state)
            self._instance.sandbox.go_back(state.wasm)
        return True

    def _renew(self, after: CompiledModule, saved: Callable[[], InstanceState]) -> None:
        """
        Be a new instance of a module of the same layout, on trial, with the call guard kept.

        `saved` returns the state to go back to, whose memory and globals the caller sets.
        """
        instance, before = self._instance, self.module
        instance.renew(after, lambda: saved().wasm)

        def undo() -> bool:
            failure, state = instance.failure, saved()
            with self._calls.fiber.call_guard.kept(self.name):
                instance.failure = None
                try:
                    instance.become(before, state.wasm)
                    self._require_loadable(state)
                    load_state(self, state)
                except StateRefused:  # a session of a run, which its end has left
                    instance.failure = failure
                except BaseException:
                    instance.failure = failure
                    raise
                else:
                    return True
            self._replace_by(before, Reloaded.ANEW)
            self._end_trial()
            return False

        self._trial = ReloadTrial(undo, lambda: None)

    def _replace_by(self, after: CompiledModule, way: Reloaded) -> None:
        """Put an instance of another module in the place of the present one."""
        assert self._remake is not None
        saved = self.persist() if way is Reloaded.HANDED_OVER else b""
        new = Guest(self._remake.make(self._label, after))
        try:
            new.initialize()
            if way is Reloaded.HANDED_OVER:
                new.restore(saved)
        except BaseException:
            new.close()
            raise
        before, waited = self._calls, self._waits_for_start
        self._be(calls_of(new), new._waits_for_start)

        def undo() -> bool:
            failed = self._calls
            self._be(before, waited)
            failed.instance.give_up()
            return True

        def keep() -> None:
            before.instance.replaced()
            before.instance.close()

        self._trial = ReloadTrial(undo, keep)

    def _be(self, calls: CallLoop, waits_for_start: bool) -> None:
        self._calls, self._instance = calls, calls.instance
        self._waits_for_start = waits_for_start
        calls.fiber.call_guard.lost += 1

    def _tried(self, call: Callable[[], _T]) -> _T:
        """Make a call, perhaps one of the first after a reload. Raises ReloadUndone."""
        try:
            result = call()
        except GuestError as error:
            self._undo_for(error)
            raise
        self._count_trial()
        return result

    def _undo_for(self, error: GuestError) -> None:
        """Raise ReloadUndone if a reload ends with this error: the module before goes on."""
        if self._trial is None or self.failure is None:
            return
        is_whole = self._undo_reload()
        anew = "" if is_whole else ", which begins anew as its run was left"
        raise ReloadUndone(
            f"{self.name} failed right after a reload, and goes on with the module before{anew}:"
            f" {error}"
        ) from error

    def _undo_reload(self) -> bool:
        """Go back to the module before, if there is one; return False if that begins anew."""
        trial, self._trial = self._trial, None
        return trial is None or trial.undo()

    def _count_trial(self) -> None:
        """Count a call after a reload; after the first calls the previous module is freed."""
        if self._trial is not None:
            self._trial.left -= 1
            if not self._trial.left:
                self._end_trial()

    def _end_trial(self) -> None:
        trial, self._trial = self._trial, None
        if trial is not None:
            trial.keep()

    def allocations(self) -> tuple[int, int, int, int] | None:
        """
        Return the numbers of allocations, bytes allocated, frees and bytes freed.

        Returns None if the guest does not count them.
        """
        if "ark_get_alloc_stats" not in self.module.functions:
            return None
        words = self.read_memory(self.call("ark_get_alloc_stats"), 32)
        count, size, frees, freed = (
            int.from_bytes(words[i : i + 8], "little") for i in range(0, 32, 8)
        )
        return count, size, frees, freed

    def read_memory(self, pointer: int, size: int) -> bytes:
        """
        Return a copy of `size` bytes of guest memory.

        `pointer` is an address as a guest returns it: an i32, signed or unsigned, for example -16
        or 4_294_967_280. Raises InvalidArguments for a range that reaches beyond the memory,
        TooManyBytes, and GuestBusy.
        """
        address, count = address_of(pointer), size_of(size)
        with self._instance.memory() as memory:
            return memory.read(address, count)

    def write_memory(self, pointer: int, data: BytesLike) -> None:
        """
        Write bytes to guest memory, at an address as `read_memory` takes it.

        Raises InvalidArguments for a range that reaches beyond the memory, in which case no byte is
        written, and GuestBusy.
        """
        address, content = address_of(pointer), bytes_of(data)
        with self._instance.memory() as memory:
            memory.write(address, content)

    def memory(self) -> AbstractContextManager[memoryview]:
        """
        View the guest's memory, without a copy, within a `with` block.

        The view is read-only, uint8, [size of the memory]; it shows changes that calls of the guest
        make within the block, but not pages by which the memory grows. After the block the view
        raises ValueError. Leaving the block raises UsageError if a slice or an array of the view
        still exists: copy what you want to keep. Within the block `close` raises GuestBusy. Raises
        GuestBusy while a call is in progress, and GuestFailed for a guest that is closed.

        Example:
            with guest.memory() as view:
                screen = np.frombuffer(view, np.uint8, 320 * 200, address & 0xFFFF_FFFF).copy()

        """
        return self._instance.view()

    def close(self) -> None:
        """
        Free the guest, or raise GuestBusy while a call is in progress or its memory is viewed.

        Safe to call twice.
        """
        self._end_trial()
        self._instance.close()

    def _start_before(self, function: str, budget: Budget) -> None:
        """Start a module that is a command as well, before the first call of another function."""
        if (start := self._start_of(function)) is not None:
            self._calls.call(start, (), start_budget(self._instance.limits, budget))

    def _start_of(self, function: str) -> str | None:
        """Return the function that starts the guest before `function`, once, or None."""
        start = deferred_start(self.module, function)
        if start is not None or is_start(self.module, function):
            self._waits_for_start = False
            self._calls.is_command = start is None
        return start

    def _successful(self, function: str, data: BytesLike, budget: Budget) -> bytes:
        reply = self.invoke(function, data, budget=budget)
        if reply.status:
            text = reply.data.decode("utf-8", "replace")
            raise CmdletFailed(
                f"{self.name}: {function} answered {reply.status} {text}".rstrip(),
                status=reply.status,
            )
        return reply.data


def fail_restored(guest: Guest, error: BaseException) -> None:
    """Fail a guest of which only a part of a state was restored."""
    failure = GuestError(f"{guest.name} was not restored: {error}")
    failure.__cause__ = error
    calls_of(guest).fail(failure)


def startup_of(guest: Guest) -> StartupProgress:
    """Return how far the startup of a guest has come: whether its initializers have run."""
    return _STARTUPS[guest._calls.is_initialized, guest._waits_for_start]  # noqa: SLF001


def set_startup(guest: Guest, startup: StartupProgress) -> None:
    """Set how far the startup of a guest has come, as `startup_of` returned it."""
    guest._calls.is_initialized, guest._waits_for_start = startup  # noqa: SLF001


def load_state(guest: Guest, state: InstanceState) -> None:
    """
    Return a guest to a saved state that fits its instance; the caller holds the call guard.

    Raises StateRefused; a guest that got only a part of its state has failed.
    """
    try:
        calls_of(guest).instance.load(state)
        set_startup(guest, state.startup)
    except BaseException as error:
        fail_restored(guest, error)
        raise


def renew(guest: Guest, after: CompiledModule, saved: Callable[[], InstanceState]) -> None:
    """
    Replace a guest's instance by one of a rebuilt module with the same layout, on trial.

    `saved` returns the state to return to if the module fails; its memory and globals are set by
    the caller, who has ended the trial of an earlier reload and holds the call guard. Raises the
    errors of a new instance, and then the guest is unchanged.
    """
    guest._renew(after, saved)  # noqa: SLF001


def require_unviewed(guests: Iterable[Guest]) -> None:
    """Raise GuestBusy if the memory of one of the guests is viewed."""
    for guest in guests:
        guest._instance.require_unlent()  # noqa: SLF001


def try_reload(guests: Sequence[Guest]) -> bool:
    """
    Count one of the first calls after a reload of guests that are stepped together.

    If one of the guests has failed, all return to the previous module, and the result is False.
    """
    tried = [guest for guest in guests if guest._trial is not None]  # noqa: SLF001
    has_failed = any(guest.failure is not None for guest in tried)
    for guest in tried:
        (guest._undo_reload if has_failed else guest._count_trial)()  # noqa: SLF001
    return not has_failed


def undo_reloads(guests: Sequence[Guest]) -> None:
    """Return guests to the modules that they had before a reload, where they are still on trial."""
    for guest in guests:
        guest._undo_reload()  # noqa: SLF001


def end_trials(guests: Iterable[Guest]) -> None:
    """Keep the reloaded modules of guests, and free the previous ones."""
    for guest in guests:
        guest._end_trial()  # noqa: SLF001


def is_on_trial(guest: Guest) -> bool:
    """Return whether a guest is in its first calls after a reload, which can still be undone."""
    return guest._trial is not None  # noqa: SLF001


def trace_file_of(guest: Guest) -> Path | None:
    """Return the file in which the calls of a guest are recorded, or None."""
    return calls_of(guest).instance.trace_path


def calls_of(guest: Guest) -> CallLoop:
    """Return the loop that serves a guest's calls, for the packages above `guests`."""
    return guest._calls  # noqa: SLF001


def take_start(guest: Guest) -> bool:
    """
    Return whether a guest's deferred start function must still run, and note that it runs now.
    """
    waits, guest._waits_for_start = guest._waits_for_start, False  # noqa: SLF001
    return waits


def initializers(module: CompiledModule) -> list[str]:
    """Return the names of the functions that a new instance runs first, such as `_initialize`."""
    names = [name for name in INITIALIZERS if name in module.functions]
    return [*module.info.startup.functions, *names]


def helpers(module: CompiledModule) -> frozenset[str]:
    """Return the names of functions that prepare a guest or another call, and are not frames."""
    return frozenset((*initializers(module), SEED_EXPORT, "ark_alloc", "ark_free"))


def seeded_initializers(module: CompiledModule, function: str) -> list[str]:
    """
    Return the names of the functions that a new instance runs before `function`.

    These are the initializers and, before `ark_initialize`, SEED_EXPORT if the module has it.
    """
    names = initializers(module)
    if (start := deferred_start(module, function)) is not None:
        names.insert(len(module.info.startup.functions), start)
    if SEED_EXPORT in module.functions:
        last = names.index("ark_initialize") if "ark_initialize" in names else len(names)
        names.insert(last, SEED_EXPORT)
    return names


def is_start(module: CompiledModule, function: str) -> bool:
    """Return whether `function` itself starts an instance, as `_start` does."""
    return function in (COMMAND, module.info.startup.deferred)


def deferred_start(module: CompiledModule, function: str) -> str | None:
    """
    Return the function that must start an instance before the first call of `function`, or None.
    """
    start = module.info.startup.deferred
    if function == SEED_EXPORT or function not in module.functions or is_start(module, function):
        return None
    return None if function.startswith(_RESERVED) else start


def require_function(function: str) -> None:
    """Raise UsageError for a value that cannot be the name of an export."""
    if not isinstance(function, str):
        raise UsageError(f"function is {cut_repr(function)}: it takes the name of an export")


def _joined(arguments: str | Sequence[str]) -> bytes:
    """Return the arguments of a cmdlet as the bytes of its input. Raises UsageError."""
    text = arguments if isinstance(arguments, str) else _with_spaces(arguments)
    return utf8(text, "arguments")


def _with_spaces(arguments: Sequence[str]) -> str:
    if not isinstance(arguments, Sequence) or isinstance(arguments, BytesLike):
        raise UsageError(f"arguments is {cut_repr(arguments)}: it takes a text, or a list of texts")
    for argument in arguments:
        if not isinstance(argument, str) or not argument or " " in argument:
            raise UsageError(
                f"the argument {cut_repr(argument)} cannot be given to a cmdlet: each is a text"
                " that is not empty and holds no space"
            )
    return " ".join(arguments)
