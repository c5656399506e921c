"""One instance of a module, joined with the services that answer it."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable

import numpy as np

from arkml.abi.codes import ErrorCode
from arkml.closing import Closing, Unclosed
from arkml.errors import EntryPointMissing, GuestError, GuestFailed
from arkml.guests.blocking import Waiting
from arkml.guests.counts import Statistics
from arkml.policies.library import PolicyLibrary
from arkml.runtime.abort import EnvironmentCalls
from arkml.runtime.call_guard import CallGuard
from arkml.runtime.columns.region import Region
from arkml.runtime.columns.slabs import Columns, Shape
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.engine import Engine
from arkml.runtime.exported_function import ExportedFunction
from arkml.runtime.fiber import Fiber
from arkml.runtime.interrupts import GUARD
from arkml.runtime.linker import Handlers
from arkml.runtime.lockstep import Lockstep
from arkml.runtime.memory import GuestMemory
from arkml.runtime.sandbox import Sandbox
from arkml.runtime.shim import control as at
from arkml.runtime.shim.control import Kind
from arkml.runtime.wasi.calls import WasiCalls
from arkml.runtime.wasi.linking import OURS, WasiGrant
from arkml.runtime.wasi.virtual import VirtualCalls, World
from arkml.sessions.gateway import RunGateway
from arkml.sessions.handles import U64_LAYOUT
from arkml.sessions.services import Services
from arkml.sessions.session import Session


class Instance(Closing):
    """
    A sandbox, the services that answer its imports, and the fiber that its calls run on.

    Time and chance are the machine's, or those of `world`. `unclosed` warns where the instance is
    dropped without `close`, and `released` is called when it is closed or dropped.
    `failure` is why the instance cannot be called any more, or None.
    """

    def __init__(
        self,
        engine: Engine,
        program: CompiledModule,
        *,
        name: str,
        number: int,
        columns: Columns,
        library: PolicyLibrary,
        hives: RunGateway | None = None,
        wasi: WasiGrant | None = None,
        call_guard: CallGuard | None = None,
        lockstep: Lockstep | None = None,
        world: World | None = None,
        unclosed: Unclosed | None = None,
        released: Callable[[], object] = lambda: None,
    ) -> None:
        self.name = name
        self.number = number
        self.program = program
        self.failure: GuestError | None = None
        self._limits = program.limits
        self._arena = engine.arena
        self._closed = True  # until there is something to close
        self._unclosed = unclosed or Unclosed(f"<{type(self).__name__} {name}>")
        self._columns = columns
        self._released = released
        self._told: set[str] = set()
        self._bad_features = 0
        self._final: Statistics | None = None
        self._sandbox = sandbox = Sandbox(
            engine, program, columns, lockstep or Lockstep(engine.arena), wasi,
            virtual=world is not None,
        )  # fmt: skip
        self.control = sandbox.control
        self.place = sandbox.place
        self._touched = sandbox.lockstep.touched
        self._bad_actions_word = (sandbox.control + at.BAD_ACTIONS) >> 2
        self._entries = sandbox.entries
        self._regions = sandbox.records.regions
        try:
            self.services = Services(
                name,
                number,
                limits=program.limits,
                library=library,
                open_queue=self._open_queue,
                hives=hives,
                clock=time.time_ns if world is None else world.time_of_day,
            )
            wasi_calls = self._serve_imports(wasi or WasiGrant(), world)
            waiting = Waiting(self.services, wasi_calls)
            call_guard = call_guard or CallGuard(engine.ticker)
            self.fiber = Fiber(sandbox, call_guard, self._handlers, waiting.after_import)
        except BaseException:
            sandbox.close()
            raise
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "failed" if self.failure else "ready"
        return f"<{type(self).__name__} {self.name} {state}>"

    def entry(self, function: str) -> ExportedFunction:
        """The exported function, or raise EntryPointMissing."""
        found = self._sandbox.entry(function)
        if found is None:
            exported = ", ".join(sorted(self.program.functions)) or "none"
            raise EntryPointMissing(
                f"{self.name} exports no function {function!r}; it exports {exported}"
            )
        return found

    def loop(self, function: str) -> ExportedFunction | None:
        """Return the loop of frames over the exported function, where there can be one."""
        return self._sandbox.loop(function)

    def submitted(self) -> Session:
        """The session whose submit the guest is suspended in."""
        record = self.fiber.record
        region = self._regions[record]
        session: Session | None = region.session
        if session is None:
            session = region.session = self.services.session_at(record)
        return session

    def submitted_region(self) -> Region:
        """Where the rows of the submit lie that the guest is suspended in. Raises GuestFailed."""
        if self._closed and (refusal := self.refusal()):
            raise refusal
        return self._regions[self.fiber.record]

    def count_features(self) -> None:
        """The submit that the guest is suspended in has features that are not finite."""
        features = self.submitted().queue.batch().features
        self._bad_features += int(np.count_nonzero(~np.isfinite(features)))
        self._tell("features", "non-finite features are passed on to the policy as they are")

    @property
    def statistics(self) -> Statistics:
        """What the guest did so far."""
        return self._final or self._count()

    def close(self) -> None:
        """Free the instance. Raises GuestBusy while a call is in progress. Safe to call again."""
        if self._closed:
            return
        with GUARD.held_back(), self.fiber.call_guard.kept(self.name):
            self._release()

    def refusal(self) -> GuestFailed | None:
        """Why the instance takes no call, or None if it does."""
        if self._closed:
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
        if not (sys.is_finalizing() or getattr(self, "_closed", True)):
            self._release()
            self._unclosed.warn(self)

    def _release(self) -> None:
        """Free what the collector does not know of: the call, the Store, the column memory."""
        self._closed = True
        try:
            self._final = self._count()
            self._released()
            self.fiber.call_guard.lost += 1
            self.fiber.drop()
            self.services.close()
        finally:
            self._sandbox.close()

    def _readable(self) -> GuestMemory:
        """The guest's memory, between calls; raises GuestBusy during one."""
        if self._closed and (refusal := self.refusal()):
            raise refusal
        memory = self._sandbox.memory
        with self.fiber.call_guard.kept(self.name):
            memory.pages = self._sandbox.native_memory.pages()
        return memory

    def _count(self) -> Statistics:
        words, control = self._arena.words, self._sandbox.control
        errors = {code.name: count for code, count in self._handlers.errors.items()}
        found = Statistics(
            non_finite_features=self._bad_features,
            non_finite_actions=self.services.non_finite_actions,
        )
        found.errors.update(errors)
        found.limits.update(self._handlers.limits)
        found.submits = words[(control + at.SUBMITS) >> 2]
        found.rows = words[(control + at.ANSWERED_ROWS) >> 2]
        found.non_finite_actions += words[self._bad_actions_word]
        start = (control + at.ERRORS) >> 2
        for code in ErrorCode:
            if count := words[start + code]:
                found.errors[code.name] += count
        return found

    def _serve_imports(self, grant: WasiGrant, world: World | None) -> WasiCalls:
        """Gather the handlers of all imports; returns those of WASI."""
        services, memory = self.services, self._sandbox.memory
        if world is None:
            wasi_calls = WasiCalls(grant, memory)
        else:
            wasi_calls = VirtualCalls(grant, memory, world)
        environment = EnvironmentCalls(memory, services.register_panic)
        modules = {**services.handlers, OURS: wasi_calls, "env": environment}
        self._handlers = Handlers(modules, services.offer, self._tell)
        return wasi_calls

    def _open_queue(
        self, handle: int, *, training: bool, num_features: int, num_actions: int, key: int
    ) -> Region:
        """Make the queue of a new session and tell the shim of it."""
        columns, records = self._columns, self._sandbox.records
        index = U64_LAYOUT.index(handle)
        shape = Shape(num_features, num_actions, training, columns.first_rows)
        region = Region(columns, records.open(index), shape, key)
        records.regions[index] = region
        region.publish(handle, Kind.TRAINING if training else Kind.INFERENCE)
        return region

    def _tell_actions(self) -> None:
        self._tell("actions", "the policy gave non-finite actions or values: answered as zeros")

    def _tell(self, kind: str, text: str) -> None:
        """Say `text`, unless something of that kind was said before."""
        if kind not in self._told:
            self._told.add(kind)
            self.services.log.say(logging.WARNING, text)
