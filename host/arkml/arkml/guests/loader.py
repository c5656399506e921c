"""The loader of a host's guests: it owns the engine, the models and the list of live guests."""

from __future__ import annotations

import _thread
import itertools
import sys
import threading
import weakref
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import Protocol

from arkml.base.closing import Unclosed
from arkml.base.collector import collector_paused
from arkml.base.short_reprs import cut_repr
from arkml.errors import GuestBusy, InstanceLimitExceeded, UsageError
from arkml.guests.backends import model_cache
from arkml.guests.call_loop import CallLoop
from arkml.guests.fleet import Fleet
from arkml.guests.guest import Guest
from arkml.guests.host_bytes import HostBytes
from arkml.guests.instance import Instance, SharedResources
from arkml.guests.policy_changes import PolicyChanges
from arkml.guests.reloading import Compiled, Remake
from arkml.guests.snapshot_bytes import SnapshotBytes
from arkml.guests.trace_points import TracePoints
from arkml.guests.trace_recorder import GuestRecorder
from arkml.limits import Backend, Limits
from arkml.policies.choices import Given, PolicyChoices
from arkml.policies.describe import require_loadable
from arkml.policies.library import PolicyLibrary
from arkml.policies.policy_files import PolicyFile
from arkml.policies.shared_run import Helpers
from arkml.policies.sources import Override
from arkml.runtime.account import Usage
from arkml.runtime.call_guard import CallGuard
from arkml.runtime.columns.slabs import Columns
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.engine import Engine
from arkml.runtime.interrupts import GUARD
from arkml.runtime.lockstep import Lockstep
from arkml.runtime.mappings import require_mappings
from arkml.runtime.sandbox import most_native
from arkml.runtime.wasi.linking import WasiGrant
from arkml.runtime.wasi.virtual import World
from arkml.sessions.gateway import RunGateway

_RESERVED_ROWS = 8
"""Rows of a submit for which a fleet has room before its first frame."""


class Gateways(Protocol):
    """Opens the gateways through which guests reach the runs that they may train."""

    def open(self, module: CompiledModule, library: PolicyLibrary) -> RunGateway | None:
        """
        Return the gateway through which guests of `module` reach their runs, None without a hive.
        """

    def close(self) -> None:
        """Deliver the rows that are still queued, and leave the runs."""


class GuestTrace(TracePoints, Protocol):
    """The recorder or the replay of one guest."""

    def loop(self, instance: Instance) -> CallLoop:
        """Return the loop that serves the guest's calls while they are recorded or replayed."""


class TraceSource(Protocol):
    """The maker of recorders for the guests of a host."""

    def require_choice(self, instances: int) -> None:
        """Raise UsageError if this many guests may be recorded only after a choice among them."""

    def recorder(
        self, module: CompiledModule, name: str, index: int | None
    ) -> GuestRecorder | None:
        """Return the recorder of a new guest, or None."""

    def close(self) -> None:
        """Wait until all files are written."""


class GuestLoader:
    """
    Makes the guests of one host, which keep it alive.

    `override` answers every guest in place of the models that it loads; a file that cannot act
    raises ModelRejected. `choices` has policies for single sessions, which come before `override`;
    see `PolicyChoices`. `seed` and `deterministic` determine the noise of stochastic policies. Up
    to `threads` threads run the guests of a fleet, and its policies. `backend` runs the models.
    `recorders` record the inputs of guests. A loader that is dropped without `close` gives a
    ResourceWarning.
    """

    _open_engine: Engine | None = None

    def __init__(
        self,
        limits: Limits,
        *,
        wasi: WasiGrant | None,
        override: Override,
        seed: int,
        deterministic: bool,
        gateways: Gateways,
        threads: int,
        backend: Backend = "onnxruntime",
        choices: Mapping[object, Given] | None = None,
        recorders: TraceSource | None = None,
    ) -> None:
        self.limits = limits
        self.recorders: TraceSource | None = recorders
        """What makes the recorders of guests that are made from now on, or None."""
        self._threads = threads
        self._helpers = Helpers(threads)
        self._models = model_cache(limits, backend)
        self.policies: PolicyChanges = PolicyChanges(override, self._models, limits)
        """The policy that answers the guests, and its changes."""
        self.choices: PolicyChoices | None = None if choices is None else PolicyChoices(choices)
        """The policies for single sessions, or None."""
        for given in (choices or {}).values():
            if isinstance(given, PolicyFile):
                require_loadable(given, self._models, limits)
        self.wasi = wasi
        self._seed = seed
        self._deterministic = deterministic
        self._gateways = gateways
        self.unclosed = Unclosed("<Host>")
        self._open_engine = Engine(limits)
        self._numbers = itertools.count()
        self._instances: dict[int, weakref.ref[Instance]] = {}
        self._makers: dict[int, weakref.ref[_Maker]] = {}  # of guests that are being made
        self._keys = itertools.count()
        self._bytes = HostBytes(limits.host_bytes)
        self._past = Usage()  # of guests that are closed
        self._left: deque[Usage] = deque()  # likewise, not added up yet
        self._adding = threading.RLock()
        GUARD.install()

    @property
    def engine(self) -> Engine:
        """The engine that all guests share. Raises UsageError once the host is closed."""
        if self._open_engine is None:
            raise UsageError("this host is closed")
        return self._open_engine

    @property
    def account(self) -> Usage:
        """Time and memory charged to all guests; of closed guests only the time."""
        live = [instance for each in list(self._instances.values()) if (instance := each())]
        usage = sum((instance.usage for instance in live), Usage())
        self._add_past()
        return usage + self._past

    def library(self, guest_name: str = "") -> PolicyLibrary:
        """
        Return a new library of policies for the guests of one thread, all called `guest_name`.
        """
        policies = self.policies
        with policies.lock:
            library = PolicyLibrary(
                self._models,
                seed=self._seed,
                deterministic=self._deterministic,
                override=policies.override,
                limits=self.limits,
                helpers=self._helpers,
                choices=self.choices,
                guest_name=guest_name,
                lock=policies.lock,
            )
            policies.follow(library)
        library.workspace.is_interrupted = GUARD.is_requested
        return library

    def shared(
        self,
        *,
        gateway: RunGateway | None = None,
        library: PolicyLibrary | None = None,
        world: World | None = None,
        unclosed: Unclosed | None = None,
        instances: int = 1,
        reserved_rows: int = 1,
    ) -> SharedResources:
        """
        Return the resources that `instances` guests of one thread share.

        With several instances, each queue begins with room for `reserved_rows` rows. Raises
        InstanceLimitExceeded if the machine has no room for the guests, and UsageError if many are
        to be traced without a choice.
        """
        if instances > 1:
            self._require_room_for(instances)
        if self.recorders is not None:
            self.recorders.require_choice(instances)
        engine = self.engine
        library = self.library() if library is None else library
        call_guard = CallGuard(engine.ticker)
        self.policies.follow(library, call_guard)
        lockstep = Lockstep(engine.arena, self._threads)
        return SharedResources(
            Columns(engine.arena, self.limits, instances, reserved_rows),
            library,
            gateway,
            call_guard,
            lockstep,
            set(),
            SnapshotBytes(lockstep, call_guard),
            world,
            unclosed,
        )

    def trained(
        self,
        module: CompiledModule,
        name: str,
        instances: int = 1,
        library: PolicyLibrary | None = None,
    ) -> SharedResources:
        """
        Return shared resources for guests that may take part in the host's runs.

        `name` is the guests' or, for a fleet, the fleet's.
        """
        self._bytes.require_room(instances, most_native(module))
        library = self.library(name) if library is None else library
        gateway = self._gateways.open(module, library)
        return self.shared(
            gateway=gateway, library=library, instances=instances, reserved_rows=_RESERVED_ROWS
        )

    def load(
        self,
        module: CompiledModule,
        name: str,
        shared: SharedResources,
        number: int | None = None,
        trace: GuestTrace | None = None,
        index: int | None = None,
        is_traced: bool = True,
    ) -> CallLoop:
        """
        Make a guest whose initializers have not run.

        `number` is the number of the guest that this one copies, so that both have the same noise.
        `trace` replays the guest. `index` is its index among guests that are recorded in a file
        each; if `is_traced` is False, this guest is not recorded.
        """
        if trace is None and is_traced:
            trace = self._recorder(module, name, index)
        number = next(self._numbers) if number is None else number
        return self._make(module, name, number, shared, trace)

    def fleet(
        self,
        module: CompiledModule,
        name: str,
        instances: int,
        shared: SharedResources | None = None,
        compiled: Compiled | None = None,
    ) -> Fleet:
        """
        Make guests of one module that are stepped together, without running their initializers.

        They share the parts of `shared`, by default parts from `trained`. `compiled` returns the
        modules with which they may be reloaded.
        """
        unclosed = Unclosed(f"<Fleet of {cut_repr(instances)} guests of {name}>")
        shared = self.trained(module, name, instances) if shared is None else shared
        shared = shared._replace(unclosed=unclosed)

        numbers = itertools.count()

        def calls_of(label: int, module: CompiledModule) -> CallLoop:
            trace = self._recorder(module, f"{name}#{label}", None if instances == 1 else label)
            return self._make(module, f"{name}#{label}", next(numbers), shared, trace)

        remake = compiled and Remake(compiled, calls_of)

        def make(label: int, module: CompiledModule) -> Guest:
            return Guest(calls_of(label, module), remake, label)

        guests: list[Guest] = []
        try:
            with collector_paused():
                guests.extend(make(label, module) for label in range(instances))
            return Fleet(guests, self.engine, shared, make, self._require_room_for, self.policies)
        except BaseException:
            for guest in guests:
                guest.close()
            raise

    def close(self) -> None:
        """
        Free every guest, the models and the engine, and leave the runs.

        Raises GuestBusy if a guest is in a call, or is being made by another thread or by the code
        that this signal handler interrupted. Safe to call twice.
        """
        engine, self._open_engine = self._open_engine, None
        if engine is None:
            return
        try:
            self._require_none_made()
            for reference in list(self._instances.values()):
                instance = reference()
                if instance is not None:
                    instance.close()
        except BaseException:
            self._open_engine = engine
            raise
        with ExitStack() as stack:  # Ctrl-C while rows are on their way leaves nothing behind
            stack.callback(GUARD.uninstall)
            stack.callback(self._models.close)
            stack.callback(self.policies.close)
            stack.callback(engine.close)
            stack.callback(self._helpers.close)
            stack.callback(self._gateways.close)
            if self.recorders is not None:
                stack.callback(self.recorders.close)

    def _recorder(
        self, module: CompiledModule, name: str, index: int | None
    ) -> GuestRecorder | None:
        """Return the recorder of a new guest, or None."""
        return None if self.recorders is None else self.recorders.recorder(module, name, index)

    def _require_none_made(self) -> None:
        if any(maker() is not None for maker in list(self._makers.values())):
            raise GuestBusy("a guest of this host is being made: close it after that")

    def __del__(self) -> None:
        """
        Free a loader that was dropped without `close`, with a ResourceWarning.

        Its guests were freed before, or free themselves in the same collection.
        """
        if self._open_engine is None or sys.is_finalizing():
            return
        self._open_engine = None
        _thread.start_new_thread(self._gateways.close, ())  # waits for rows: no finalizer may
        GUARD.uninstall()
        self.unclosed.warn(self)

    def _make(
        self,
        module: CompiledModule,
        name: str,
        number: int,
        shared: SharedResources,
        trace: GuestTrace | None,
    ) -> CallLoop:
        key, is_limited = next(self._keys), self._bytes.most is not None
        maker = _Maker()  # goes with this frame, wherever a signal handler ends it
        try:
            self._makers[key] = weakref.ref(maker, partial(self._makers.pop, key))
            engine = self.engine  # behind the line above: `close` looks in the other order
            self._require_room(1)
            with GUARD.held_back():
                self._bytes.admit(key, most_native(module))
                try:
                    instance = Instance(
                        engine,
                        module,
                        shared,
                        name=name,
                        number=number,
                        owner=self,
                        key=key,
                        wasi=self.wasi,
                        give=partial(self._bytes.give, key) if is_limited else None,
                        trace=trace,
                    )
                except BaseException:
                    self._bytes.leave(key)
                    raise
                if self._left:
                    self._add_past()
                self._instances[key] = weakref.ref(instance)
                return CallLoop(instance) if trace is None else trace.loop(instance)
        finally:
            del maker  # the frame itself lives on in a traceback

    def forget(self, key: int, usage: Usage) -> None:
        """Forget an instance that was freed; until then the instance keeps the loader alive."""
        self._bytes.leave(key)
        if self._instances.pop(key, None) is not None:  # else one that was freed in two attempts
            self._left.append(usage)  # without a lock: a finalizer may be here

    def _add_past(self) -> None:
        """Add up the usage of closed guests. Any thread may call it, and any signal handler."""
        with self._adding, suppress(IndexError):
            while True:
                self._past += self._left.popleft()

    def _require_room_for(self, count: int) -> None:
        """Raise InstanceLimitExceeded if `count` guests more are too many for host or machine."""
        self._require_room(count)
        require_mappings(count)

    def _require_room(self, count: int) -> None:
        live, limit = len(self._instances), self.limits.instances
        if live + count > limit:
            raise InstanceLimitExceeded(
                f"this host has {live} guests: {cut_repr(count)} more are over its limit of {limit}"
                " (Limits.instances)"
            )


class _Maker:
    """A guest that is being made, as long as this object is alive."""

    __slots__ = ("__weakref__",)
