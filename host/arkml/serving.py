"""The loop that serves a guest's calls: it joins the wasm of `runtime` and the ML of `sessions`."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from arkml.abi.codes import ErrorCode
from arkml.closing import Closing
from arkml.errors import (
    AbiError,
    EntryPointMissing,
    GuestCancelled,
    GuestError,
    GuestFailed,
    GuestTrap,
)
from arkml.policies.library import PolicyLibrary
from arkml.runtime import control as at
from arkml.runtime.abort import EnvironmentCalls
from arkml.runtime.bindings import Address
from arkml.runtime.columns import Region
from arkml.runtime.control import Kind
from arkml.runtime.deadline import TICK
from arkml.runtime.engine import Engine
from arkml.runtime.entry import Entry, Number
from arkml.runtime.fiber import Fiber, Pause
from arkml.runtime.flight import Flight
from arkml.runtime.linker import Handlers, error_code
from arkml.runtime.memory import GuestMemory
from arkml.runtime.program import Program
from arkml.runtime.sandbox import Sandbox
from arkml.runtime.slabs import Columns, Shape
from arkml.runtime.traps import backtrace, failure
from arkml.runtime.waits import Wait
from arkml.runtime.wasi_calls import WasiCalls
from arkml.runtime.wasi_linker import OURS, WasiGrant
from arkml.sessions.services import Services
from arkml.sessions.session import Session
from arkml.statistics import Statistics
from arkml.waiting import Waiting, give_way, sleep, sleep_async

logger = logging.getLogger(__name__)

DEFAULT_BUDGET = -1.0  # seconds; stands for Limits.run_seconds


class ServedGuest(Closing):
    """
    One instance of a module and everything that answers it.

    `begin` starts a call, `fiber.advance` runs it, `answer` and the waits serve it, and `end` or
    `abandon` ends it. `call` and `call_async` are that loop for one guest; a fleet runs it for
    many.
    """

    def __init__(
        self,
        engine: Engine,
        program: Program,
        *,
        name: str,
        number: int,
        columns: Columns,
        library: PolicyLibrary,
        wasi: WasiGrant | None = None,
        flight: Flight | None = None,
        released: Callable[[], object] = lambda: None,
    ) -> None:
        self.name = name
        self.number = number
        self.program = program
        self.failure: GuestError | None = None
        self._limits = program.limits
        self._arena = engine.arena
        self._closed = True  # until there is something to close
        self._columns = columns
        self._sandbox = sandbox = Sandbox(engine, program, columns, wasi)
        self.services = Services(
            name, number, limits=program.limits, library=library, open_queue=self._open_queue
        )
        wasi_calls = WasiCalls(wasi or WasiGrant(), self._sandbox.memory)
        environment = EnvironmentCalls(sandbox.memory, self.services.register_panic)
        modules = {**self.services.handlers, OURS: wasi_calls, "env": environment}
        self._handlers = Handlers(modules, self.services.offer)
        waiting = Waiting(self.services, wasi_calls)
        self.fiber = Fiber(
            sandbox,
            flight or Flight(engine.ticker),
            self._handlers,
            waiting.after_import,
            self._tell,
        )
        self._bad_features = 0
        self._bad_actions_word = (self._sandbox.control + at.BAD_ACTIONS) >> 2
        self.control = sandbox.control
        self._released = released
        self._told: set[str] = set()
        self._entries = self._sandbox.entries
        self._regions = self._sandbox.records.regions
        self._closed = False

    def call(self, function: str, *arguments: Number, budget: float | None = DEFAULT_BUDGET) -> Any:
        """
        Call an exported function and return its result.

        Integers come back signed, several results as a tuple. `budget` is how many seconds the
        guest may run, without policies and suspension; None is no limit, the default is
        `Limits.run_seconds`. Raises GuestBusy, GuestFailed, EntryPointMissing, UsageError,
        GuestTrap, GuestTimeout, GuestExit, and KeyboardInterrupt after Ctrl-C.
        """
        return self._run(self.begin(function, arguments, budget))

    async def call_async(
        self, function: str, *arguments: Number, budget: float | None = DEFAULT_BUDGET
    ) -> Any:
        """Like `call`, but other tasks run while the guest waits, and after each 10 ms it ran."""
        entry = self.begin(function, arguments, budget)
        turn = time.perf_counter()
        try:
            while (event := self.fiber.advance(cooperative=True)) is not None:
                if event is Pause.SUBMIT:
                    self.answer()
                elif event is Pause.SUBMIT_NON_FINITE:
                    self.count_features()
                    self.answer()
                elif isinstance(event, Wait):
                    await sleep_async(event, self.fiber)
                if time.perf_counter() - turn > TICK:
                    await give_way()
                    turn = time.perf_counter()
        except BaseException as error:
            self.abandon(error)
            raise
        return self.end(entry)

    def begin(
        self,
        function: str,
        arguments: tuple[Number, ...] = (),
        budget: float | None = DEFAULT_BUDGET,
        data: bytes = b"",
    ) -> Entry:
        """Start a call; `data` is its input for `core__get_input_slice`."""
        if self.failure is not None or self._closed:
            self._refuse_call()
        entry = self._entries.get(function)
        if entry is None:
            with self.fiber.flight.kept(self.name):
                entry = self.entry(function)
        limit = self._limits.run_seconds if budget == DEFAULT_BUDGET else budget
        self.fiber.start(entry, arguments, limit)
        if data or self.fiber.imports:  # else there is nothing to forget
            self.services.begin_call(data)
            self.fiber.imports = len(data)
        return entry

    def entry(self, function: str) -> Entry:
        """The exported function, or raise EntryPointMissing."""
        found = self._sandbox.entry(function)
        if found is None:
            exported = ", ".join(sorted(self.program.functions)) or "none"
            raise EntryPointMissing(
                f"{self.name} exports no function {function!r}; it exports {exported}"
            )
        return found

    def answer(self) -> None:
        """Answer the submit that the guest is suspended in, by the policy of its session."""
        try:
            self.submitted().answer()
        except AbiError as error:
            self.refuse(error)
        except Exception:
            logger.exception("%s: its policy failed, a bug of the host", self.name)
            self.fiber.answer(ErrorCode.INTERNAL_ERROR)
        else:
            self.fiber.answer(0)

    def submitted(self) -> Session:
        """The session whose submit the guest is suspended in."""
        record = self.fiber.record
        region = self._regions[record]
        session: Session | None = region.session
        if session is None:
            session = region.session = self.services.session_at(record)
        return session

    def submitted_region(self) -> Region:
        """Where the rows of the submit lie that the guest is suspended in."""
        return self._regions[self.fiber.record]

    def count_features(self) -> None:
        """The submit that the guest is suspended in has features that are not finite."""
        features = self.submitted().queue.batch().features
        self._bad_features += int(np.count_nonzero(~np.isfinite(features)))
        self._tell("non-finite features are passed on to the policy as they are")

    def refuse(self, error: AbiError) -> None:
        """Let the import call that the guest is suspended in return the code of `error`."""
        self.services.log.say(logging.WARNING, str(error))
        self.fiber.answer(error_code(error))

    def end(self, entry: Entry) -> Any:
        """The call ended by itself: return its result, or raise what it left."""
        if entry.failed():
            error = self.failure_of(*entry.errors())
            self.abandon(error)
            raise error
        self.fiber.finish()
        if self._arena.words[self._bad_actions_word]:
            self._tell_actions()
        return entry.result() if entry.results else None

    def abandon(self, error: BaseException, *, landed: bool = False) -> None:
        """
        Drop a call that failed or is not wanted any more: the guest is failed from now on.

        `landed` says that the flight is somebody else's to end.
        """
        self.fiber.drop()
        self.fiber.flight.lost += 1
        if isinstance(error, GuestError):
            self.failure = error
        else:
            self.failure = GuestCancelled(
                f"{self.name}: its call was cancelled ({type(error).__name__})"
            )
        try:
            self.services.close()
        finally:
            if not landed:
                self.fiber.flight.end()

    @property
    def statistics(self) -> Statistics:
        """What the guest did so far."""
        words, control = self._arena.words, self._sandbox.control
        errors = {code.name: count for code, count in self._handlers.errors.items()}
        found = Statistics(
            non_finite_features=self._bad_features,
            non_finite_actions=self.services.non_finite_actions,
        )
        found.errors.update(errors)
        if not self._closed:
            found.submits = words[(control + at.SUBMITS) >> 2]
            found.rows = words[(control + at.ANSWERED_ROWS) >> 2]
            found.non_finite_actions += words[self._bad_actions_word]
            start = (control + at.ERRORS) >> 2
            for code in ErrorCode:
                if count := words[start + code]:
                    found.errors[code.name] += count
        return found

    def cancel(self) -> None:
        """Let the call in flight raise GuestCancelled when it next gives way. From any thread."""
        self.fiber.flight.cancel()

    def close(self) -> None:
        """Free the instance. Raises GuestBusy while a call is in flight. Safe to call again."""
        if self._closed:
            return
        with self.fiber.flight.kept(self.name):
            self._release()

    @property
    def is_closed(self) -> bool:
        """Whether the instance is freed."""
        return self._closed

    def __del__(self) -> None:
        if not (sys.is_finalizing() or getattr(self, "_closed", True)):
            self._release()

    def _release(self) -> None:
        """Free what the collector does not know of: the call, the Store, the column memory."""
        self._closed = True
        self._released()
        self.fiber.flight.lost += 1
        self.fiber.drop()
        try:
            self.services.close()
        finally:
            self._sandbox.close()

    def _run(self, entry: Entry) -> Any:
        advance = self.fiber.advance
        try:
            while (event := advance()) is not None:
                if event is Pause.SUBMIT:
                    self.answer()
                elif event is Pause.SUBMIT_NON_FINITE:
                    self.count_features()
                    self.answer()
                elif isinstance(event, Wait):
                    sleep(event, self.fiber)
        except BaseException as error:
            self.abandon(error)
            raise
        return self.end(entry)

    def _readable(self) -> GuestMemory:
        """The guest's memory, between calls; raises GuestBusy during one."""
        if self._closed:
            self._refuse_call()
        memory = self._sandbox.memory
        with self.fiber.flight.kept(self.name):
            memory.pages = self._sandbox.native_memory.pages()
        return memory

    def _refuse_call(self) -> None:
        if self._closed:
            raise GuestFailed(f"{self.name} is closed")
        raise GuestFailed(f"{self.name} failed before: {self.failure}") from self.failure

    def failure_of(self, trap: Address, error_address: Address) -> GuestError:
        """The error of a call that left a trap or an error, with the panic that went before it."""
        error = failure(self.name, trap, error_address) or GuestTrap(f"{self.name} failed")
        panic = self.services.panic
        if panic is not None and isinstance(error, GuestTrap):
            text = f"{self.name} panicked: {panic}{backtrace(error.frames)}"
            return GuestTrap(text, code=error.code, panic=panic, frames=error.frames)
        return error

    def _open_queue(
        self, handle: int, *, training: bool, num_features: int, num_actions: int, key: int
    ) -> Region:
        """Make the queue of a new session and tell the shim of it."""
        columns, records = self._columns, self._sandbox.records
        index = (handle & 0xFFFF_FFFF) - 1
        shape = Shape(num_features, num_actions, training, columns.first_rows)
        region = Region(columns, records.open(index), shape, key)
        records.regions[index] = region
        region.publish(handle, Kind.TRAINING if training else Kind.INFERENCE)
        return region

    def _tell_actions(self) -> None:
        self._tell("the policy gave non-finite actions or values: answered as zeros")

    def _tell(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self.services.log.say(logging.WARNING, what)
