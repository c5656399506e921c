"""A host and its guests for tests: every guest runs on a thread of its host."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

import numpy.typing as npt

from arkml.base.closing import Closing, Unclosed
from arkml.base.sealed import Sealed
from arkml.errors import GuestError
from arkml.guests.call_loop import CallLoop, Reply
from arkml.guests.counts import Statistics
from arkml.guests.fleet import Fleet, raise_first
from arkml.guests.fleet_call import FleetResult
from arkml.guests.fleet_memory import Array, Shape
from arkml.guests.guest import Guest
from arkml.guests.reloading import Reloaded, Remake
from arkml.guests.snapshots import FleetSnapshot, GuestSnapshot
from arkml.guests.trace_recorder import Trace
from arkml.host import Host, Policies, Source, loader_of, read_source
from arkml.limits import RUN_SECONDS, Backend, Budget, Limits, Threads, require_whole
from arkml.policies.given import PolicyFunction
from arkml.policies.library import PolicyLibrary
from arkml.policies.policy import Policy
from arkml.runtime.account import Usage
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.exported_function import Numbers
from arkml.runtime.game_functions import Imports
from arkml.runtime.memory import BytesLike
from arkml.runtime.module.description import ModuleInfo
from arkml.runtime.wasi.linking import WasiGrant
from arkml.testing.guest_thread import WorkThread

if TYPE_CHECKING:
    from arkml.runs.hive_access import HiveGrant

T = TypeVar("T")


class ThreadedGuest(Sealed, Closing):
    """
    A guest whose calls run on a thread.

    A signal handler that raises, such as the one of pytest-timeout, ends a call like Ctrl-C: the
    guest has failed, and the exception arrives in the test. Members of `Guest` that are missing
    here are in `guest`; use it only if no signal handler raises.
    """

    def __init__(self, guest: Guest, worker: WorkThread) -> None:
        self.guest = guest
        self._worker = worker

    def call(self, function: str, *arguments: float, budget: Budget = RUN_SECONDS) -> Any:
        """Call an exported function of numbers and return its result."""
        return self._run(partial(self.guest.call, function, *arguments, budget=budget))

    def initialize(self) -> None:
        """Run the start function and the initializers of the module."""
        self._run(self.guest.initialize)

    def update(self, frames: int = 1, *, budget: Budget = RUN_SECONDS) -> None:
        """Run frames of an applet. Raises UsageError unless `frames` is a whole number from 1."""
        for _ in range(require_whole("frames", frames)):
            self._run(partial(self.guest.update, budget=budget))

    def run_cmdlet(self, arguments: str = "", *, budget: Budget = RUN_SECONDS) -> bytes:
        """Run a cmdlet; raises CmdletFailed if its status is not 0."""
        return self._run(partial(self.guest.run_cmdlet, arguments, budget=budget))

    def help(self) -> str:
        """Return the help text of a cmdlet."""
        return self._run(self.guest.help)

    def run_command(self, *, budget: Budget = None) -> int:
        """Run a WASI command and return its exit status."""
        return self._run(partial(self.guest.run_command, budget=budget))

    def invoke(
        self, function: str, data: BytesLike = b"", *, budget: Budget = RUN_SECONDS
    ) -> Reply:
        """Call a function that takes bytes."""
        return self._run(partial(self.guest.invoke, function, data, budget=budget))

    def request(self, data: BytesLike, *, budget: Budget = RUN_SECONDS) -> bytes:
        """Send a request to a servlet, and return its answer."""
        return self._run(partial(self.guest.request, data, budget=budget))

    def persist(self) -> bytes:
        """
        Return the state of the guest, for `restore`, as its own `ark_state_persist` writes it.
        """
        return self._run(self.guest.persist)

    def snapshot(self) -> GuestSnapshot:
        """Return a copy of the whole state of the guest, for `restore`."""
        return self._run(self.guest.snapshot)

    def restore(self, state: GuestSnapshot | BytesLike) -> None:
        """Return the guest to a state that `snapshot` or `persist` returned."""
        self._run(partial(self.guest.restore, state))

    def reload(self, source: Source | CompiledModule) -> Reloaded:
        """Continue with a rebuilt module from the next call on, as `Guest.reload` does."""
        return self._run(partial(self.guest.reload, source))

    def read_memory(self, pointer: int, size: int) -> bytes:
        """Return a copy of guest memory."""
        return self._run(partial(self.guest.read_memory, pointer, size))

    def write_memory(self, pointer: int, data: BytesLike) -> None:
        """Write guest memory."""
        self._run(partial(self.guest.write_memory, pointer, data))

    def memory(self) -> AbstractContextManager[memoryview]:
        """View the guest's memory within a `with` block, as `Guest.memory` does."""
        return self.guest.memory()

    @property
    def name(self) -> str:
        """Name of the guest in messages, such as `npc.wasm`."""
        return self.guest.name

    @property
    def info(self) -> ModuleInfo:
        """Description of the module."""
        return self.guest.info

    @property
    def statistics(self) -> Statistics:
        """Counts of the guest since it was loaded."""
        return self.guest.statistics

    @property
    def account(self) -> Usage:
        """Time since loading and present memory charged to the guest, by kind."""
        return self.guest.account

    @property
    def failure(self) -> GuestError | None:
        """The error that ended the guest, or None while it can be called."""
        return self.guest.failure

    @property
    def return_slice(self) -> bytes | None:
        """The bytes that the last call gave to `core__return_slice`."""
        return self.guest.return_slice

    @property
    def live_handles(self) -> int:
        """Number of sessions, models, loads and futures that the guest has not dropped yet."""
        return self.guest.live_handles

    def close(self) -> None:
        """Free the instance."""
        self._run(self.guest.close)

    def _run(self, work: Callable[[], T]) -> T:
        return self._worker.run(work, self.guest.cancel)


class ThreadedFleet(Sealed, Closing):
    """
    A fleet whose calls run on a thread, as those of `ThreadedGuest`.

    `fleet` is the fleet itself, and has the members that are missing here; use it, and its guests,
    only if no signal handler raises.
    """

    def __init__(self, fleet: Fleet, worker: WorkThread) -> None:
        self.fleet = fleet
        self._worker = worker

    def __len__(self) -> int:
        return len(self.fleet)

    @property
    def guests(self) -> tuple[Guest, ...]:
        """The guests in the order of their indices."""
        return self.fleet.guests

    def initialize(self) -> None:
        """Run the initializers of every guest. Raises the first error of a guest."""
        raise_first(self._run(self.fleet.initialize))

    def call(
        self,
        function: str,
        *arguments: Numbers,
        budget: Budget = RUN_SECONDS,
        only: Iterable[int] | None = None,
    ) -> FleetResult:
        """
        Call an exported function of every guest, as `Fleet.call` does.

        Args:
            function: Name of the export.
            arguments: One for each parameter: a number, or a numpy array of one for each guest.
            budget: Seconds that may be charged to each guest, None for no limit.
            only: Indices of the guests to call; None calls all.

        """
        call = partial(self.fleet.call, function, *arguments, budget=budget, only=only)
        return self._run(call)

    def update(self, frames: int = 1, *, budget: Budget = RUN_SECONDS) -> dict[int, GuestError]:
        """
        Run frames of every guest, and return the errors of guests that have failed, by index.

        Raises UsageError unless `frames` is a whole number from 1.
        """
        failures: dict[int, GuestError] = {}
        for _ in range(require_whole("frames", frames)):
            failures = {**self._run(partial(self.fleet.update, budget=budget)), **failures}
        return failures

    def read(
        self,
        name: str,
        dtype: npt.DTypeLike,
        shape: Shape = (),
        *,
        only: Iterable[int] | None = None,
    ) -> Array:
        """
        Return the values at an exported address of every guest's memory, as `Fleet.read` does.

        Args:
            name: Name of the export.
            dtype: Type of the numbers in guest memory, such as np.float32.
            shape: Shape of the values of one guest; () is one number.
            only: Indices of the guests to read; None reads all.

        """
        return self._run(partial(self.fleet.read, name, dtype, shape, only=only))

    def write(self, name: str, values: Array, *, only: Iterable[int] | None = None) -> None:
        """
        Write a row of an array to an exported address of every guest, as `Fleet.write` does.

        Args:
            name: Name of the export.
            values: Numbers, [guests, *shape], of the type that the guests use.
            only: Indices of the guests to write to, in the order of the rows; None writes to all.

        """
        self._run(partial(self.fleet.write, name, values, only=only))

    def snapshot(self) -> FleetSnapshot:
        """Return a copy of the whole state of every guest, for `restore`."""
        return self._run(self.fleet.snapshot)

    def restore(self, state: FleetSnapshot | GuestSnapshot) -> None:
        """Return the fleet to a state that `snapshot` returned."""
        self._run(partial(self.fleet.restore, state))

    def close(self) -> None:
        """Close every guest."""
        self._worker.run(self.fleet.close)

    def _run(self, work: Callable[[], T]) -> T:
        guests = self.fleet.guests[:1]  # all share one guard, by which a call is canceled
        return self._worker.run(work, guests[0].cancel) if guests else self._worker.run(work)


class _NoWarning(Unclosed):
    """A warning that is never given, since the session's host closes guests that a test drops."""

    def warn(self, source: object) -> None:
        """Give no warning."""


class HostKeywords(TypedDict, total=False):
    """Keyword arguments of `arkml.Host`, which explains them."""

    policy: Source | Policy | PolicyFunction | None
    policies: Policies | None
    outputs: str | Sequence[str]
    seed: int
    deterministic: bool
    backend: Backend
    limits: Limits | None
    wasi: WasiGrant | None
    stub_missing: bool
    hive: HiveGrant | None
    threads: Threads
    imports: Imports | None
    trace: Trace | str | os.PathLike[str] | None


class ThreadedHost(Sealed, Closing):
    """A host whose guests run on a thread, with the arguments of `arkml.Host`."""

    def __init__(self, **options: Unpack[HostKeywords]) -> None:
        self._worker = WorkThread()
        self._host = self._worker.run(partial(Host, **options))
        self._programs: dict[tuple[str, bytes], CompiledModule] = {}

    def load(
        self,
        source: Source,
        *,
        name: str | None = None,
        initialize: bool = True,
        policies: PolicyLibrary | None = None,
    ) -> ThreadedGuest:
        """
        Make a guest. A module is compiled once for all its guests.

        Args:
            source: A path, bytes, or wasm text in bytes.
            name: Name of the guest in messages; None takes the file name.
            initialize: False leaves the initializers to `ThreadedGuest.initialize`.
            policies: Answers the guest instead of the models that it loads, as `RecordingPolicies`
                does.

        Raises:
            ModuleError: The module cannot be loaded.
            GuestError: An initializer failed.

        Example:
            with host.load("walker.wasm", policies=RecordingPolicies()) as guest:
                guest.update(60)

        """
        guest = ThreadedGuest(
            self._worker.run(partial(self._load, source, name, policies)), self._worker
        )
        if initialize:
            try:
                guest.initialize()
            except BaseException:
                guest.close()
                raise
        return guest

    def fleet(
        self, source: Source, instances: int, *, name: str | None = None, initialize: bool = True
    ) -> ThreadedFleet:
        """
        Make guests of one module that are stepped together.

        Args:
            source: A path, bytes, or wasm text in bytes.
            instances: Number of guests, 1 at least.
            name: Name of the fleet in messages; None takes the file name.
            initialize: False leaves the initializers to `ThreadedFleet.initialize`.

        Raises:
            ModuleError: The module cannot be loaded.
            GuestError: An initializer failed.
            UsageError: An argument has a wrong type or value.

        Example:
            with host.fleet("walker.wasm", 8) as fleet:
                assert fleet.update(60) == {}

        """
        make = partial(self._host.fleet, source, instances, name=name, initialize=False)
        fleet = ThreadedFleet(self._worker.run(make), self._worker)
        if initialize:
            try:
                fleet.initialize()
            except BaseException:
                fleet.close()
                raise
        return fleet

    def close(self) -> None:
        """Close every guest and end the thread."""
        self._worker.run(self._host.close)
        self._worker.close()

    def _load(self, source: Source, name: str | None, policies: PolicyLibrary | None) -> Guest:
        data, label = read_source(source, name)
        program = self._programs.get((label, data))
        if program is None:
            program = self._programs[label, data] = self._host.compile(data, name=label)
        loader = loader_of(self._host)
        shared = loader.trained(program, label, library=policies)
        shared = shared._replace(unclosed=_NoWarning("a test's guest"))

        def make(_number: int, module: CompiledModule) -> CallLoop:
            return loader.load(module, label, shared)

        return Guest(make(0, program), Remake(partial(self._compiled, label), make))

    def _compiled(self, name: str, source: Source | CompiledModule) -> CompiledModule:
        """Return the rebuilt module with which a guest continues."""
        if isinstance(source, CompiledModule):
            return source
        return self._host.compile(source, name=name)
