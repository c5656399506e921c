"""The factory of an environment's instances, all of one module and with the same options."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Collection
from dataclasses import dataclass

from arkml.base.closing import Closing, Unclosed
from arkml.base.loggers import SafeLogger, notice
from arkml.base.short_reprs import cut_repr
from arkml.envs.core.agent_tracker import AgentNumbers
from arkml.envs.core.declared_specs import Declarations
from arkml.envs.core.env_instance import EnvInstance
from arkml.envs.core.experiments import Experiments
from arkml.envs.core.history import FrameState, History, InstanceOrigin
from arkml.envs.core.script import Configuration, Script
from arkml.envs.core.world import Pace, SeededWorld
from arkml.errors import InvalidSpec, UsageError
from arkml.guests.instance import SharedResources
from arkml.guests.trace_recorder import Trace
from arkml.host import Host, Source, loader_of
from arkml.limits import Limits, Threads, keep_whole, real_number
from arkml.runs.hive_gateway import settings_of
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.game_answers import GameAnswers
from arkml.runtime.game_functions import Imports
from arkml.runtime.wasi.linking import WasiGrant
from arkml.sessions.declarations import SpecLike
from arkml.sessions.run_request import TrainingRequest

log = SafeLogger(__name__)

_KEPT_BYTES = 16 << 10  # of the request of an instance, for the next one


@dataclass(frozen=True, slots=True)
class InstanceSettings:
    """The options of `GuestEnv` that every instance is made with; see `GuestEnvOptions`."""

    entry: str | None
    args: str
    configure: Configuration
    snapshot: bytes | None
    inference: bool | None
    behaviors: Collection[str] | None
    idle_calls: int
    seconds: float | None
    frame_seconds: float
    max_episode_steps: int | None = None

    def __post_init__(self) -> None:
        keep_whole(self, "idle_calls")
        chosen = self.behaviors
        is_several = isinstance(chosen, Collection) and not isinstance(chosen, str | bytes)
        if chosen is not None and not (is_several and all(isinstance(one, str) for one in chosen)):
            raise UsageError(
                f"behaviors is {cut_repr(chosen)}: it takes names of behaviors, as ['walker'], or"
                " None for all"
            )
        if self.seconds is not None:
            seconds = real_number(self.seconds)
            if seconds is None or seconds <= 0:
                raise UsageError(f"seconds is {cut_repr(self.seconds)}: a number above 0, or None")
            object.__setattr__(self, "seconds", seconds)
        if self.max_episode_steps is not None:
            keep_whole(self, "max_episode_steps")


class InstanceFactory(Closing):
    """
    Makes the instances of a module for one environment, and numbers their agents.

    Without `host` the factory makes a host of its own, with `wasi`, `imports`, `trace` and
    `limits`, and `close` closes it. `owner` is the object that the warning about an unclosed
    environment names. Raises UsageError and EntryPointMissing for options that do not fit the
    module.
    """

    def __init__(
        self,
        module: Source | CompiledModule,
        settings: InstanceSettings,
        *,
        spec: SpecLike,
        wasi: WasiGrant | None,
        limits: Limits | None,
        host: Host | None,
        threads: Threads | None,
        imports: Imports | None,
        trace: Trace | str | os.PathLike[str] | None,
        digest: str | None,
        owner: str,
    ) -> None:
        require_host(host)
        if wasi is not None and host is not None:
            raise UsageError("wasi= is for an environment's own host: grant it to the one you give")
        if threads is not None and host is not None:
            raise UsageError("threads= is for an environment's own host: give it to that host")
        if imports is not None and host is not None:
            raise UsageError("imports= is for an environment's own host: give it to that host")
        if trace is not None and host is not None:
            raise UsageError("trace= is for an environment's own host: give it to that host")
        self.settings: InstanceSettings = settings
        """The options of every instance."""
        self.pace: Pace = Pace(settings.frame_seconds)
        """The speed of the guests' clocks."""
        self.numbers: AgentNumbers = AgentNumbers()
        """The numbers of all agents of the environment."""
        self.is_traced: bool = True
        """False for instances that are not recorded, even if those of the host are."""
        self.owners: set[InstanceFactory] | None = None
        """The factories that share a host of their own; the last one closes it."""
        if host is None:
            threads = "auto" if threads is None else threads
            host = Host(limits=limits, wasi=wasi, threads=threads, imports=imports, trace=trace)
            self.owners = {self}
        self.host: Host = host
        try:
            self.module: CompiledModule = _compiled(module, self.host)
            _require_same(module, self.module, digest)
            self.script: Script = Script(
                self.module, settings.entry, settings.args, settings.configure
            )
            self.declarations: Declarations = Declarations(spec, self.module.info.spec)
        except BaseException:
            self.close()
            raise
        self.is_closed: bool = False
        """True once the environment is closed."""
        self._known: tuple[TrainingRequest, tuple[int, int]] | None = None
        self._unclosed = Unclosed(f"<{owner} of {self.module.name}>")
        if self.owners is not None:
            loader_of(self.host).unclosed = self._unclosed

    def shared(self, instances: int = 1) -> SharedResources:
        """
        Return the resources shared by `instances` instances that are stepped together.

        Raises InstanceLimitExceeded if the machine has no room for them.
        """
        return loader_of(self.host).shared(unclosed=self._unclosed, instances=instances)

    def make(
        self,
        seed: int,
        resources: SharedResources,
        *,
        number: int | None = None,
        index: int | None = None,
        history: History | None = None,
        state: bytes | None = None,
    ) -> EnvInstance:
        """
        Return a new instance, before its first call, for the caller to step and close.

        Args:
            seed: The seed of the clock and random numbers, and of the guest itself.
            resources: Resources shared with the instances that are stepped together.
            number: The number of the guest that this one copies, or None.
            index: The index of the instance in a fleet, or None.
            state: A result of another instance's `ark_state_persist`, restored before the first
                frame.
            history: A record of the guest's inputs, for copies. If the record has a state, the
                instance is to load that state, and only frames are called.

        """
        settings = self.settings
        world = SeededWorld(seed, self.pace)
        experiments = Experiments(
            settings.snapshot, self._shape_of, self.declarations, settings.behaviors, world
        )
        shared = resources._replace(gateway=experiments, world=world)
        calls = loader_of(self.host).load(
            self.module, self.module.name, shared, number, index=index, is_traced=self.is_traced
        )
        experiments.count_in(calls.account)
        calls.fiber.game_answers = None if history is None else history.answers
        handed = _forget if history is None else history.handed
        has_begun = history is not None and history.state is not None
        return EnvInstance(
            calls,
            self.script.frames(calls, handed)
            if has_begun
            else self.script.calls(calls, seed, handed, state),
            self.script.messages,
            experiments,
            world,
            self.declarations,
            self.numbers,
            frame=self.script.frame,
            inference=settings.inference,
            idle=settings.idle_calls,
            seconds=settings.seconds,
            most_steps=settings.max_episode_steps,
            history=history,
        )

    def make_kept(self, seed: int) -> EnvInstance:
        """Return a new instance whose inputs are recorded, so that it can be copied."""
        origin = InstanceOrigin(seed, self.numbers.upcoming, self.pace.nanoseconds)
        return self.make(seed, self.shared(), history=self._history(origin))

    def make_copied(self, history: History, number: int) -> EnvInstance:
        """
        Return a new instance that is to copy another, given the other's history and guest number.
        """
        origin, state, resources = history.origin, history.state, self.shared()
        self.numbers.begin(origin.first_agent)
        if state is not None:
            resources = resources._replace(warned=set(state.warned))
        kept = self._history(origin, state)
        return self.make(origin.seed, resources, number=number, history=kept)

    def _history(self, origin: InstanceOrigin, state: FrameState | None = None) -> History:
        wasi = self.host.wasi
        has_files = wasi is not None and bool(wasi.directories or wasi.stdin)
        return History(
            origin,
            state=state,
            answers=GameAnswers() if self.module.game else None,
            has_states=self.script.frame is not None and not has_files,
        )

    def copied(self) -> InstanceFactory:
        """Return a factory for the same module and host, with numbers and a pace of its own."""
        copied = self.variant(self.settings)
        copied.pace = copy.copy(self.pace)
        copied.numbers = AgentNumbers(self.numbers.upcoming)
        if self.owners is not None:
            copied.owners = self.owners
            self.owners.add(copied)
        return copied

    def variant(self, settings: InstanceSettings) -> InstanceFactory:
        """
        Return a factory for the same module and host, with other settings and its own numbers.

        Raises UsageError and EntryPointMissing for settings that do not fit the module.
        """
        return InstanceFactory(
            self.module,
            settings,
            spec=self.declarations.given,
            wasi=None,
            limits=None,
            host=self.host,
            threads=None,
            imports=None,
            trace=None,
            digest=None,
            owner=type(self).__name__,
        )

    def require_behavior(self, instance: EnvInstance) -> None:
        """
        Raise UsageError if the guest has none of the behaviors to be stepped, or none declared.
        """
        names, chosen = _behaviors_of(instance), self.settings.behaviors
        if names and (missed := self.declarations.missed(names)):
            raise InvalidSpec(missed)
        if chosen is not None and names and names.isdisjoint(chosen):
            raise UsageError(
                f"behaviors={sorted(chosen)}: {instance.guest.name} has {', '.join(sorted(names))}"
            )

    def warn_undeclared(self, instance: EnvInstance) -> None:
        """Log a warning, once, if the guest has experiments, and none of theirs is declared."""
        names = _behaviors_of(instance)
        if not names or self.settings.inference:  # whose sessions may be of another name, or none
            return
        if missed := self.declarations.missed(names):
            text = f"{missed} up to its first submit: look at the name, if no other begins later"
            notice(log, logging.WARNING, text)

    def require_open(self) -> None:
        """Raise UsageError once the environment is closed."""
        if self.is_closed:
            raise UsageError("the environment is closed")

    def _shape_of(self, request: TrainingRequest) -> tuple[int, int]:
        """Return the numbers of features and actions of the run that a guest starts."""
        known = self._known
        if known is not None and known[0] == request:  # as all instances ask for one run
            return known[1]
        settings = settings_of(request, None, {})
        shape = settings.features, settings.actions
        self._known = (request, shape) if request.size <= _KEPT_BYTES else None
        return shape

    def close(self) -> None:
        """Close the host, if the factory made it; the instances must be closed before."""
        self.is_closed = True
        owners = self.owners
        if owners is not None:
            owners.discard(self)
            if not owners:
                self.host.close()


def _forget(_message: bytes, _sender: str) -> None:
    """Take no note of a message."""


def require_host(host: Host | None) -> None:
    """Raise UsageError for a value other than a host, or None."""
    if not isinstance(host, Host | None):
        raise UsageError(f"host is {cut_repr(host)}: it takes arkml.Host, or None")


def _compiled(module: Source | CompiledModule, host: Host) -> CompiledModule:
    return module if isinstance(module, CompiledModule) else host.compile(module)


def _require_same(
    source: Source | CompiledModule, module: CompiledModule, digest: str | None
) -> None:
    if digest is not None and digest != module.digest:
        raise UsageError(
            f"{cut_repr(source)} is another module than when the environment was pickled"
        )


def _behaviors_of(instance: EnvInstance) -> set[str]:
    """Return the names of the behaviors of a guest's experiments."""
    return {run.behavior.name for run in instance.experiments.started.values()}
