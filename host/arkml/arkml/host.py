"""The host: compiles modules and loads guests."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from arkml.base.closing import Closing, Unique
from arkml.base.files import named, read_file
from arkml.base.output_files import path_of
from arkml.base.sealed import Sealed
from arkml.base.short_reprs import cut_repr
from arkml.errors import GuestError, ModuleError, UsageError
from arkml.guests.call_loop import CallLoop
from arkml.guests.fleet import Fleet, raise_first
from arkml.guests.guest import Guest
from arkml.guests.loader import GuestLoader
from arkml.guests.reloading import Remake
from arkml.guests.snapshots import GuestSnapshot
from arkml.guests.trace_recorder import Recorders, Trace, trace_of
from arkml.limits import (
    Backend,
    Limits,
    Threads,
    number_of_guests,
    require_backend,
    require_flag,
    require_seed,
)
from arkml.policies.choices import Given
from arkml.policies.given import PolicyFunction
from arkml.policies.library import PolicyLibrary
from arkml.policies.policy import Policy
from arkml.policies.sources import policy_source
from arkml.runtime.account import Usage
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.game_functions import GameFunctions, Imports
from arkml.runtime.memory import BytesLike
from arkml.runtime.module.description import ModuleKind
from arkml.runtime.threads import number_of_threads
from arkml.runtime.wasi.linking import WasiGrant
from arkml.sessions.gateway import RunGateway

if TYPE_CHECKING:
    from arkml.runs.hive_access import HiveAccess, HiveGrant

Source = str | os.PathLike[str] | BytesLike
_Policy: TypeAlias = Source | Policy | PolicyFunction
NamedPolicies: TypeAlias = Mapping[str, _Policy]
Policies: TypeAlias = (
    NamedPolicies | Mapping[tuple[int, int], _Policy] | Mapping[str | tuple[int, int], _Policy]
)


class Host(Sealed, Unique, Closing):
    """
    A compiler of modules and a loader of guests, which share limits, grants and a policy.

    Guests may be used from any thread, each from one thread at a time. They keep their host alive.
    A host, guest, fleet or environment that is dropped without `close` gives a ResourceWarning.

    A policy file that cannot act is refused when the host is made. Sessions of a training act with
    the policy of their run, whatever `policy` is.

    Args:
        policy: Acts in place of the snapshots that guests load: the path or the bytes of an ONNX or
            Cervo file, a `Policy`, or a function `(observations) -> actions` (float32, [n, F], and
            float32, [n, A]). None lets each guest use its own snapshots.
        policies: Policies for some sessions, of the same kinds, where `policy` answers all others.
            A key is the name of a behavior that a guest declares in its section `arkml.spec`; else
            the name of a guest or fleet, such as "goblin" for goblin.wasm; else the numbers of
            features and actions of a session, such as `(8, 3)`. Names come first. The guest gets
            InvalidArguments for a session that may be of several behaviors with different policies.
        outputs: The names of the outputs of a policy file that hold its actions, for example
            `("move", "jump")`, needed where names and shapes leave a choice. The columns of several
            outputs are joined in this order.
        seed: Seed of the noise of stochastic policies, any whole number.
        deterministic: True leaves out the noise of stochastic policies.
        backend: The backend that runs ONNX models, of the policy and of guests: "onnxruntime", the
            fastest for many agents; or "wasm", which compiles them to WebAssembly that computes one
            row after another, is the fastest for one agent, and gives the same bits on every
            machine. A model with operators that cannot be compiled is refused. Policies of a
            training always run by onnxruntime.
        limits: Limits of each guest; None takes the defaults of `Limits`.
        wasi: The access of guests through WASI. None refuses modules that import WASI.
        stub_missing: True links unknown `ark-*` functions to stubs instead of refusing the module.
        hive: The permission to train. None lets no guest train.
        imports: Functions of the game that guests may import, by module and name, or objects whose
            public methods are such functions, by module: `{"env": Physics()}`; or the name of such
            a mapping in a module, "mygame:functions". They are called with the numbers that the
            guest passes (int for i32, signed, and i64, float for f32 and f64), and return a number,
            None, or a tuple of several results, as the import declares. A parameter annotated with
            `arkml.Memory` or `arkml.CallingGuest` gets the guest's memory or the guest. Their time
            is charged to the guest, which ends with `GameFunctionFailed` if one raises.
            `arkml.game_function` declares a function that answers many guests at once.
        trace: Records the inputs of guests, for `arkml.Replay`: the path of a file, or
            `arkml.Trace`. None records nothing.
        threads: The most threads that run the guests of a fleet or an environment at the same time,
            1 to 256, or "auto" for the processors that the process may use. Results do not depend
            on it. Fewer are used where that is faster.

    Raises:
        UsageError: An argument has a wrong type or value.
        ModelRejected: The policy file is malformed or cannot act.

    Example:
        def raycast(x: float, y: float, angle: float) -> float:
            return world.distance(x, y, angle)

        with arkml.Host(policy="walker.onnx", imports={("env", "raycast"): raycast}) as host:
            guest = host.load("walker.wasm")
            guest.update()

    """

    _is_read_only = True

    def __init__(
        self,
        *,
        policy: Source | Policy | PolicyFunction | None = None,
        policies: Policies | None = None,
        outputs: str | Sequence[str] = (),
        seed: int = 0,
        deterministic: bool = False,
        backend: Backend = "onnxruntime",
        limits: Limits | None = None,
        wasi: WasiGrant | None = None,
        stub_missing: bool = False,
        hive: HiveGrant | None = None,
        threads: Threads = "auto",
        imports: Imports | None = None,
        trace: Trace | str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(limits, Limits | None):
            raise UsageError(f"limits is {cut_repr(limits)}: it takes arkml.Limits")
        if not isinstance(wasi, WasiGrant | None):
            raise UsageError(f"wasi is {cut_repr(wasi)}: it takes arkml.WasiGrant")
        for what, flag in (("deterministic", deterministic), ("stub_missing", stub_missing)):
            require_flag(what, flag)
        seed = require_seed(seed)
        self.limits: Limits = limits or Limits()
        self.wasi = wasi
        self._stub_missing = stub_missing
        self._game = GameFunctions(imports)
        recorded, recorders = trace_of(trace), None
        if recorded is not None:
            recorders = Recorders(recorded, wasi, stub_missing=stub_missing)
        override = policy_source(policy, outputs).read(self.limits)
        choices = None if policies is None else _choices(policies, self.limits)
        self._gateways = _Gateways(hive)
        self._loader = GuestLoader(
            self.limits,
            wasi=wasi,
            override=override,
            seed=seed,
            deterministic=deterministic,
            backend=require_backend(backend),
            gateways=self._gateways,
            threads=number_of_threads(threads),
            choices=choices,
            recorders=recorders,
        )

    def compile(self, source: Source, *, name: str | None = None) -> CompiledModule:
        """
        Check and compile a module, without making a guest.

        Args:
            source: The path or the bytes of a module, in the binary or the text format.
            name: Name of the module in messages; None takes the file name, such as "walker.wasm".

        Returns:
            The compiled module, from which `load` and `fleet` make guests.

        Raises:
            ModuleError: The module is not valid, or imports functions that the host does not
                provide; the message names the file and lists all of these functions.
            MemoryLimitExceeded: The module needs more memory than `Limits.memory_bytes`.
            TableLimitExceeded: The module needs more than `Limits.tables` or
                `Limits.table_elements`.

        """
        _require_name(name)
        data, label = read_source(source, name)
        try:
            return CompiledModule(
                self._loader.engine,
                data,
                label,
                self.limits,
                wasi=self.wasi is not None,
                stub_missing=self._stub_missing,
                game=self._game,
                file=Path(source) if isinstance(source, str | os.PathLike) else None,
            )
        except (ModuleError, GuestError) as error:
            if name is not None or isinstance(source, str | os.PathLike):
                error.args = (named(label, str(error)),)
            raise

    def load(
        self, source: Source | CompiledModule, *, name: str | None = None, initialize: bool = True
    ) -> Guest:
        """
        Make a guest and run its initializers.

        If an initializer fails, its error is raised and the guest is closed.

        Args:
            source: A compiled module, or the path or the bytes of a module.
            name: Name of the guest in messages; None takes the name of the module.
            initialize: False leaves the initializers to `Guest.initialize`.

        Returns:
            The guest, which belongs to the caller. Close it, or use it in a `with` statement.

        Raises:
            ModuleError: The module cannot be loaded.
            UsageError: An argument has a wrong type.
            GuestError: An initializer failed.

        Example:
            with arkml.Host() as host, host.load("walker.wasm") as guest:
                for _ in range(60):
                    guest.update()

        """
        module = self._compiled(source, name)
        loader = self._loader
        label, shared = name or module.name, loader.trained(module, name or module.name)

        def make(_number: int, module: CompiledModule) -> CallLoop:
            return loader.load(module, label, shared)

        guest = Guest(make(0, module), Remake(partial(self._compiled, name=name), make))
        if initialize:
            try:
                guest.initialize()
            except BaseException:
                guest.close()
                raise
        return guest

    def fleet(
        self,
        source: Source | CompiledModule,
        instances: int,
        *,
        name: str | None = None,
        initialize: bool = True,
    ) -> Fleet:
        """
        Make guests of one module that are stepped together, and run their initializers in lockstep.

        If an initializer fails, its error is raised and all guests are closed.

        Args:
            source: A compiled module, or the path or the bytes of a module.
            instances: Number of guests, 1 at least.
            name: Name of the fleet in messages; None takes the module's, such as "walker.wasm".
            initialize: False leaves the initializers to `Fleet.initialize`.

        Returns:
            The fleet, which belongs to the caller.

        Raises:
            InstanceLimitExceeded: The machine has no room for all guests; no guest was made.
            ModuleError: The module cannot be loaded.
            UsageError: An argument has a wrong type or value.
            GuestError: An initializer failed.

        Example:
            with arkml.Host() as host, host.fleet("walker.wasm", 64) as fleet:
                for index, error in fleet.update().items():
                    print(index, error)

        """
        count = number_of_guests(instances, "a fleet of {} guests")
        module = self._compiled(source, name)
        compiled = partial(self._compiled, name=name)
        fleet = self._loader.fleet(module, name or module.name, count, compiled=compiled)
        if initialize:
            try:
                raise_first(fleet.initialize())
            except BaseException:
                fleet.close()
                raise
        return fleet

    def restore(
        self,
        state: GuestSnapshot | str | os.PathLike[str] | BytesLike,
        source: Source | CompiledModule,
        *,
        name: str | None = None,
    ) -> Guest:
        """
        Make a guest that continues from a saved state, of this process or of another.

        Args:
            state: A snapshot, or the path or the bytes of a file that `GuestSnapshot.save` wrote.
            source: The module of the guest that was saved, as for `load`.
            name: Name of the guest in messages; None takes the name of the module.

        Returns:
            The guest. Its initializers are not run again: they ran before the state was saved.

        Raises:
            StateRefused: The file is damaged or of a later release, or the state is of another
                module, over the limits, or has a session of a run.
            ModuleError: The module cannot be loaded.
            UsageError: The file cannot be read, or an argument has a wrong type.

        Example:
            guest.snapshot().save("orc.state")
            again = host.restore("orc.state", "orc.wasm")

        """
        saved = state
        if not isinstance(saved, GuestSnapshot):
            saved = GuestSnapshot.load(saved, most_bytes=self.limits.guest_bytes)
        guest = self.load(source, name=name, initialize=False)
        try:
            guest.restore(saved)
        except BaseException:
            guest.close()
            raise
        return guest

    def use(
        self,
        policy: Source | Policy | PolicyFunction | None,
        *,
        outputs: str | Sequence[str] = (),
        watch: bool = False,
    ) -> Future[None]:
        """
        Answer all guests with another policy, from their next call on.

        The policy is read, vetted and loaded on a thread, and no call waits for it. Once the future
        is done, calls that begin are answered by it; the guests of a fleet or an environment change
        together. If the policy is refused, or does not fit an open session of one guest, all guests
        keep the previous policy. The noise of each agent continues, and recurrent states are kept
        if they have the same shapes in both policies; else they begin as zeros. Fleets that have a
        policy of their own by `Fleet.use` keep it, and so do sessions that have one in `policies`.

        Args:
            policy: A path, bytes, a `Policy` or a function, as `Host` takes it. None lets each
                guest use its own snapshots.
            outputs: The names of the outputs of a policy file that hold its actions.
            watch: True loads the file again whenever it has changed, until the next call of `use`.
                The refusal of a file is logged once, and the previous policy stays.

        Returns:
            A future of `concurrent.futures`, which is done when the policy is in use. Its `result`
            waits, and raises ModelRejected for a file that cannot act, InvalidArguments for a
            policy that does not fit an open session, Unavailable where loading took too long on a
            busy machine, UsageError for a file that cannot be read or a host that was closed
            meanwhile, and CancelledError if the host was closed before the load began. Failures are
            logged, too. In a coroutine await `asyncio.wrap_future(future)`.

        Raises:
            UsageError: An argument has a wrong type or value, or the host is closed.

        Example:
            with arkml.Host(policy="walk.onnx") as host, host.load("npc.wasm") as npc:
                npc.update()
                host.use("run.onnx").result()
                npc.update()

        """
        source = policy_source(policy, outputs)
        return self._loader.policies.use(source, is_watched=require_flag("watch", watch))

    @property
    def account(self) -> Usage:
        """
        Time and memory charged to all guests together, by kind.

        The times include closed guests. The memory leaves out models that are kept after their use,
        and column memory that no guest has at present.
        """
        return self._loader.account

    def close(self) -> None:
        """Close every guest. Raises GuestBusy if one is in a call. Safe to call twice."""
        self._loader.close()

    def _compiled(self, source: Source | CompiledModule, name: str | None) -> CompiledModule:
        _require_name(name)
        return source if isinstance(source, CompiledModule) else self.compile(source, name=name)


def loader_of(host: Host) -> GuestLoader:
    """Return the loader of a host's guests, for the packages above `host`."""
    return host._loader  # noqa: SLF001


def hives_of(host: Host) -> HiveAccess | None:
    """Return the hives that a host's guests may train on, for the packages above `host`."""
    return host._gateways.hives  # noqa: SLF001


def idle_policies_of(host: Host) -> list[str | tuple[int, int]]:
    """Return the keys of a host's `policies` with which no session has opened so far."""
    choices = host._loader.choices  # noqa: SLF001
    return [] if choices is None else choices.idle


class _Gateways:
    """The gateways of guests to the runs on the hives that the host was granted."""

    def __init__(self, grant: HiveGrant | None) -> None:
        self.hives: HiveAccess | None = None
        if grant is not None:
            from arkml.runs.hive_access import HiveAccess, HiveGrant

            if not isinstance(grant, HiveGrant):
                raise UsageError(f"hive is {cut_repr(grant)}: it takes arkml.HiveGrant")
            self.hives = HiveAccess(grant)

    def open(self, module: CompiledModule, library: PolicyLibrary) -> RunGateway | None:
        if self.hives is None:
            return None
        from arkml.runs.hive_gateway import HiveRunGateway

        block = self.hives.grant.wait_for_learner
        if block is None:
            block = module.info.kind is not ModuleKind.APPLET
        return HiveRunGateway(self.hives, library, module, block=block)

    def close(self) -> None:
        if self.hives is not None:
            self.hives.close()


def _require_name(name: str | None) -> None:
    if not isinstance(name, str | None):
        raise UsageError(f"name is {cut_repr(name)}: it takes a text, or None")


def own_source(source: Source, what: str = "module") -> str | os.PathLike[str] | bytes:
    """
    Return a path unchanged, and bytes that can change as a copy.

    Raises UsageError for a value of another type.
    """
    if isinstance(source, bytes):
        return source
    if isinstance(source, str | os.PathLike):
        path_of(source, what)
        return source
    if isinstance(source, bytearray | memoryview):
        return bytes(source)
    raise UsageError(f"{what} is of type {type(source).__name__}: it takes a path or bytes")


def read_source(source: Source, name: str | None = None) -> tuple[bytes, str]:
    """
    Return the bytes of a module and its name, which is by default the name of its file.

    Raises ModuleError and UsageError.
    """
    source = own_source(source)
    if isinstance(source, bytes):
        return source, name or "guest"
    path = Path(source)
    try:
        return read_file(path), name or path.name
    except OSError as error:
        raise ModuleError(f"{path} cannot be read: {error.strerror}") from None


def _choices(policies: Policies, limits: Limits) -> dict[object, Given]:
    """Return the checked policies by their keys. Raises UsageError and ModelRejected."""
    if not isinstance(policies, Mapping):
        raise UsageError(
            f"policies is {cut_repr(policies)}: it takes a dict, as {{'goblin': 'goblin.onnx'}}"
        )
    made: dict[object, Given] = {}  # one for each policy, also where several keys have it
    found: dict[object, Given] = {}
    for key, policy in policies.items():
        which = policy if isinstance(policy, str | bytes | os.PathLike) else id(policy)
        try:
            given = made.get(which) or policy_source(policy).read(limits)
        except UsageError as error:
            raise UsageError(f"policies[{cut_repr(key)}]: {error}") from error
        if given is None:
            raise UsageError(f"policies has None for {cut_repr(key)}: leave the key out")
        found[key] = made[which] = given
    return found
