"""The host: what loads guests and what they share."""

from __future__ import annotations

import _thread
import gc
import itertools
import sys
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from arkml.closing import Closing, Unclosed
from arkml.errors import InstanceLimitExceeded, ModuleError, UsageError
from arkml.guests.fleet import Fleet
from arkml.guests.guest import Guest
from arkml.guests.shared import SharedResources
from arkml.limits import Limits
from arkml.policies.files import read_policy_file
from arkml.policies.library import PolicyLibrary
from arkml.policies.models import ModelCache
from arkml.runtime.call_guard import CallGuard
from arkml.runtime.columns.slabs import Columns
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.engine import Engine
from arkml.runtime.interrupts import GUARD
from arkml.runtime.lockstep import Lockstep
from arkml.runtime.mappings import require_mappings
from arkml.runtime.module.description import ModuleKind
from arkml.runtime.wasi.linking import WasiGrant
from arkml.sessions.gateway import RunGateway

if TYPE_CHECKING:
    from arkml.runs.access import HiveAccess, HiveGrant
    from arkml.runs.evaluation import Evaluator
    from arkml.runtime.wasi.virtual import World

Source = str | Path | bytes


class Host(Closing):
    """
    Loads guests and answers them.

    `policy` is the path or the bytes of an ONNX or Cervo file that takes the place of whatever the
    guests load. `seed` and `deterministic` rule the noise of stochastic policies. `wasi` grants
    WASI, `hive` what guests may train on; `stub_missing` links unknown `ark-*` functions to stubs.
    Guests may be used from any thread, each from one at a time, and keep their host. One that is
    dropped without `close` gives a ResourceWarning, as guests, fleets and environments do.
    """

    _closed = True  # until there is something to close

    def __init__(
        self,
        *,
        policy: Source | None = None,
        seed: int = 0,
        deterministic: bool = False,
        limits: Limits | None = None,
        wasi: WasiGrant | None = None,
        stub_missing: bool = False,
        hive: HiveGrant | None = None,
    ) -> None:
        if not isinstance(limits, Limits | None):
            raise UsageError(f"limits is {limits!r}: it takes arkml.Limits")
        if not isinstance(seed, int):
            raise UsageError(f"seed is {seed!r}: it takes a whole number")
        self.limits = limits or Limits()
        self._seed = seed
        self._deterministic = deterministic
        self.wasi = wasi
        self._stub_missing = stub_missing
        self._policy = _policy(policy, self.limits)
        self._open_engine: Engine | None = Engine(self.limits)
        self._models = ModelCache(self.limits)
        self._hives = _hives(hive)
        self._numbers = itertools.count()
        self._guests: dict[int, weakref.ref[Guest]] = {}
        self._keys = itertools.count()
        self.unclosed = Unclosed("<Host>")
        self._closed = False
        GUARD.install()

    @property
    def hives(self) -> HiveAccess | None:
        """The hives that the guests may use, or None."""
        return self._hives

    @property
    def _engine(self) -> Engine:
        """What the guests share. Raises UsageError once the host is closed."""
        if self._open_engine is None:
            raise UsageError("this host is closed")
        return self._open_engine

    def compile(self, source: Source, *, name: str | None = None) -> CompiledModule:
        """
        Check and compile a module: a path, bytes, or wasm text.

        Raises ModuleError (with all imports that are missing), MemoryLimitExceeded and
        TableLimitExceeded.
        """
        data, name = _read(source, name)
        return CompiledModule(
            self._engine,
            data,
            name,
            self.limits,
            wasi=self.wasi is not None,
            stub_missing=self._stub_missing,
        )

    def load(
        self, source: Source | CompiledModule, *, name: str | None = None, initialize: bool = True
    ) -> Guest:
        """Make a guest and, unless told otherwise, run what it wants to be called first."""
        program = source if isinstance(source, CompiledModule) else self.compile(source, name=name)
        guest = self._make(program, name or program.name, next(self._numbers), None)
        if initialize:
            try:
                guest.initialize()
            except BaseException:
                guest.close()
                raise
        return guest

    def evaluator(self, guest: Guest | Fleet) -> Evaluator:
        """
        A new guest of the same module, not initialized, that plays what `guest` trains.

        It acts without noise and its rows teach nobody. Raises UsageError without a hive.
        """
        from arkml.runs.evaluation import EvaluationGateway, Evaluator
        from arkml.runs.gateway import HiveRunGateway

        trained = guest.guests[0] if isinstance(guest, Fleet) else guest
        hives = trained.services.hives
        if not isinstance(hives, HiveRunGateway):
            raise UsageError("there is nothing to evaluate: the host has no hive")
        library = self._library()
        rated = EvaluationGateway(hives, library)
        columns = Columns(self._engine.arena, self.limits)
        lockstep = Lockstep(self._engine.arena)
        shared = Shared(columns, library, rated, CallGuard(self._engine.ticker), lockstep)
        name = f"{trained.program.name} (evaluation)"
        return Evaluator(self._make(trained.program, name, next(self._numbers), shared), rated)

    def resources(self, unclosed: Unclosed, instances: int = 1) -> SharedResources:
        """
        Where so many guests are stepped together, or one by itself.

        `unclosed` warns if they are dropped without `close`. Raises InstanceLimitExceeded if the
        machine has no room for them.
        """
        if instances > 1:
            require_mappings(instances)
            self._require_room(instances)
        columns = Columns(self._engine.arena, self.limits, siblings=instances)
        call_guard, lockstep = CallGuard(self._engine.ticker), Lockstep(self._engine.arena)
        return SharedResources(columns, call_guard, lockstep, unclosed)

    def driven(
        self,
        program: CompiledModule,
        hives: RunGateway,
        world: World,
        resources: SharedResources,
    ) -> Guest:
        """Make a guest, not initialized, with the runs of `hives` and the time of `world`."""
        columns, call_guard, lockstep, unclosed = resources
        shared = Shared(columns, self._library(), hives, call_guard, lockstep, world, unclosed)
        return self._make(program, program.name, next(self._numbers), shared)

    def fleet(
        self, source: Source | CompiledModule, instances: int, *, name: str | None = None
    ) -> Fleet:
        """
        Make `instances` guests of one module that are stepped together.

        They are not initialized: call `initialize` on the fleet, so that their submits are
        answered together too. Raises InstanceLimitExceeded, before anything is made, if the
        machine has no room for so many.
        """
        if instances < 1:
            raise UsageError(f"a fleet of {instances} guests: 1 at least")
        program = source if isinstance(source, CompiledModule) else self.compile(source, name=name)
        require_mappings(instances)
        self._require_room(instances)
        label = name or program.name
        columns = Columns(self._engine.arena, self.limits, siblings=instances)
        shared = self._shared(program, columns)
        shared = shared._replace(unclosed=Unclosed(f"<Fleet of {instances} guests of {label}>"))

        def make(number: int) -> Guest:
            return self._make(program, f"{label}#{number}", number, shared)

        guests: list[Guest] = []
        try:
            with _collector_paused():
                guests.extend(map(make, range(instances)))
        except BaseException:
            for guest in guests:
                guest.close()
            raise
        return Fleet(guests, self._engine, columns, shared.call_guard, shared.lockstep, make)

    def close(self) -> None:
        """Close every guest. Raises GuestBusy if one is in a call. Safe to call again."""
        if self._closed:
            return
        for reference in list(self._guests.values()):
            guest = reference()
            if guest is not None:
                guest.close()
        self._closed = True
        engine, self._open_engine = self._engine, None
        with ExitStack() as stack:  # Ctrl-C while rows are on their way leaves nothing behind
            stack.callback(GUARD.uninstall)
            stack.callback(self._models.close)
            stack.callback(engine.close)
            if self._hives is not None:
                stack.callback(self._hives.close)

    def __del__(self) -> None:
        """
        Give back what a host held that was dropped without `close`, with a ResourceWarning.

        Its guests are gone already, or free themselves in the same collection.
        """
        if self._closed or sys.is_finalizing():
            return
        self._closed = True
        if self._hives is not None:  # waits for rows on their way, which a finalizer may not
            _thread.start_new_thread(self._hives.close, ())
        GUARD.uninstall()
        self.unclosed.warn(self)

    def _forget(self, key: int) -> None:
        """A guest was closed, or dropped. Bound to the host, it keeps the host as long."""
        self._guests.pop(key, None)

    def _require_room(self, count: int) -> None:
        live, limit = len(self._guests), self.limits.instances
        if live + count > limit:
            raise InstanceLimitExceeded(
                f"this host has {live} guests: {count} more are over its limit of {limit}"
            )

    def _library(self) -> PolicyLibrary:
        return PolicyLibrary(
            self._models,
            seed=self._seed,
            deterministic=self._deterministic,
            override=self._policy,
            limits=self.limits,
        )

    def _shared(self, program: CompiledModule, columns: Columns) -> Shared:
        library = self._library()
        hives = None
        if self._hives is not None:
            from arkml.runs.gateway import HiveRunGateway

            block = self._hives.grant.block
            if block is None:
                block = program.info.kind is not ModuleKind.APPLET
            spec = program.info.spec
            hives = HiveRunGateway(self._hives, library, block=block, spec=spec)
        call_guard, lockstep = CallGuard(self._engine.ticker), Lockstep(self._engine.arena)
        return Shared(columns, library, hives, call_guard, lockstep)

    def _make(
        self,
        program: CompiledModule,
        name: str,
        number: int,
        shared: Shared | None,
    ) -> Guest:
        if self._closed:
            raise UsageError("this host is closed")
        self._require_room(1)
        if shared is None:
            shared = self._shared(program, Columns(self._engine.arena, self.limits))
        key = next(self._keys)
        with GUARD.held_back():
            guest = Guest(
                self._engine,
                program,
                name=name,
                number=number,
                columns=shared.columns,
                library=shared.library,
                hives=shared.hives,
                wasi=self.wasi,
                call_guard=shared.call_guard,
                lockstep=shared.lockstep,
                world=shared.world,
                unclosed=shared.unclosed,
                released=partial(self._forget, key),
            )
            self._guests[key] = weakref.ref(guest)
        return guest


class Shared(NamedTuple):
    """What the guests of one thread share."""

    columns: Columns
    library: PolicyLibrary
    hives: RunGateway | None
    call_guard: CallGuard
    lockstep: Lockstep
    world: World | None = None
    unclosed: Unclosed | None = None


def _hives(grant: HiveGrant | None) -> HiveAccess | None:
    if grant is None:
        return None
    from arkml.runs.access import HiveAccess

    return HiveAccess(grant)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Make many objects that stay without the collector going through them again and again."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


def _read(source: Source, name: str | None) -> tuple[bytes, str]:
    if isinstance(source, bytes):
        return source, name or "guest"
    path = Path(source)
    try:
        return path.read_bytes(), name or path.name
    except OSError as error:
        raise ModuleError(f"{path} cannot be read: {error.strerror}") from None


def _policy(source: Source | None, limits: Limits) -> bytes | None:
    if source is None or isinstance(source, bytes):
        return source
    return read_policy_file(Path(source), limits)
