"""Trials of one guest on a server: their parameters, their pacing and their environments."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakSet

import numpy as np
from google.protobuf.message import DecodeError

from arkml.base.closing import Closing, Unclosed
from arkml.envs.core.coercion import drawn_seed, seed_of
from arkml.envs.core.guest_env import GuestEnv, core_of
from arkml.envs.core.instance_factory import InstanceSettings
from arkml.envs.core.script import Script
from arkml.errors import ArkmlError, UsageError
from arkml.guest_trials.described_games import described_game
from arkml.guest_trials.guest_trials_options import GuestTrialsOptions, StandInPolicies
from arkml.guest_trials.guest_workers import GuestWorker, workers_by_default
from arkml.guest_trials.probe import GuestClass, probe
from arkml.guest_trials.rebuilding import RebuiltModule
from arkml.guest_trials.trial_environment import GuestEnvironment
from arkml.guest_trials.trial_guest import TrialGuest, TrialPlan
from arkml.host import Source, loader_of
from arkml.runtime.compiled_module import CompiledModule
from arkml.trials.core.error import TrialError
from arkml.trials.core.hosting import MOST_RATE, STAND_IN, HostedTrial, Pacing
from arkml.trials.core.parameters import LOCAL, TrialEndpoint
from arkml.trials.wire.common_pb2 import TrialParams
from arkml.trials.wire.environment_pb2 import EnvInitialInput
from arkml.trials.wire.guest_pb2 import GuestConfig
from arkml.trials.wire.players_pb2 import Description

_SHOWN = 6  # names of slots in a sentence
_REST = 2.0  # seconds after the end of a person's episode, which the page counts down


class GuestHosting(Closing):
    """
    The environments of a trial server, each an instance of one guest; it implements Hosting.

    The guest is compiled, and played once to count its slots. Close it after the server. Raises
    ModuleError, GuestError and UsageError for a guest that cannot be played, and ModelRejected for
    a policy that is refused or does not fit it.
    """

    def __init__(self, options: GuestTrialsOptions) -> None:
        self.options: GuestTrialsOptions = options
        self._first = self._env = _untraced(GuestEnv(options.module, **options.environment))
        self._policies: list[StandInPolicies] = []
        self._workers: list[GuestWorker] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._random = np.random.default_rng(options.seed)
        self._numbers = itertools.count()
        self._guests: WeakSet[TrialGuest] = WeakSet()
        self._rebuilt: RebuiltModule | None = None
        self._before: CompiledModule | None = None
        try:
            self.classes: tuple[GuestClass, ...] = probe(self._env)
            """The classes of actors."""
            _close_probed(self._env)
            self._threads = options.workers or workers_by_default()
            if options.stand_ins is not None:
                for _ in range(self._threads):
                    self._policies.append(options.stand_ins.open(self.classes))
        except BaseException:
            self.close()
            raise
        slots = [(one, one.actor(slot)) for one in self.classes for slot in range(one.slots)]
        self._slots = {name: (place, one) for place, (one, name) in enumerate(slots)}
        self._unclosed = Unclosed(f"<GuestHosting of {self._env.module.name}>")

    def completed(self, params: TrialParams) -> TrialParams:
        """
        Return a trial's parameters, completed so that every slot of the guest has an actor.

        Slots that are not among the actors are added, with stand-ins. Raises TrialError.
        """
        copy = TrialParams()
        copy.CopyFrom(params)
        for actor in copy.actors:
            self._require_slot(actor.name, actor.actor_class)
        named = {actor.name for actor in copy.actors}
        for name, (_, one) in self._slots.items():
            if name not in named:
                copy.actors.add(
                    name=name, actor_class=one.name, endpoint="local://", implementation=STAND_IN
                )
        environment = copy.environment
        given = copy.trial_config if copy.HasField("trial_config") else environment.config
        config = _parsed(given.content)
        self._require_config(config)
        del config.action_spaces[:]
        for one in self.classes:
            actions = one.behavior.spec.actions
            config.action_spaces.add(
                actor_class=one.name, low=actions.low, high=actions.high, branches=actions.branches
            )
        environment.config.content = config.SerializeToString()
        return copy

    def pacing(self, params: TrialParams) -> Pacing:
        """Return the timing of a trial's ticks, by the options and the trial's actors."""
        rate = self.options.tick_rate
        if rate is None:
            endpoints = [TrialEndpoint.parse(actor.endpoint) for actor in params.actors]
            has_people = self.options.people or any(one.scheme != LOCAL for one in endpoints)
            rate = self.own_rate if has_people else 0.0
        return Pacing(rate, self.options.away, _REST)

    @property
    def own_rate(self) -> float:
        """Ticks per second by the guest's own clock."""
        period = min(one.behavior.spec.decision_period for one in self.classes)
        return min(MOST_RATE, 1 / (self._env.pace.frame_seconds * period))

    def open(self, trial: HostedTrial) -> GuestEnvironment:
        """Start the environment of a trial; see Hosting."""
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise TrialError("the guest's trials belong to another event loop")
        self._loop = loop
        if not self._workers:
            self._start_workers(loop)
        worker = min(self._workers, key=lambda one: one.guests)
        worker.guests += 1

        def leave() -> None:
            worker.guests -= 1

        return GuestEnvironment(trial, worker, self._guest, leave)

    def describe(self) -> Description:
        """Return the actor classes of the guest, and the pacing of trials with people."""
        policies = {} if self.options.stand_ins is None else self.options.stand_ins.names
        rate = self.options.tick_rate
        description = Description(
            guest=self._env.module.name,
            tick_rate=self.own_rate if rate is None else rate,
            away_seconds=self.options.away,
            learning=self.options.learning,
        )
        for one in self.classes:
            spec = one.behavior.spec
            described = description.classes.add(
                name=one.name,
                behavior=one.behavior.name,
                low=spec.actions.low,
                high=spec.actions.high,
                branches=spec.actions.branches,
                positions=spec.positions or (),
                policy=policies.get(one.name, ""),
                game=None if spec.game is None else described_game(spec.game),
                names=spec.actions.names,
                choices=spec.actions.choices,
            )
            for part in spec.observations:
                described.observations.add(
                    name=part.name,
                    shape=part.shape,
                    low=part.low,
                    high=part.high,
                    kind=part.kind,
                    categories=part.categories,
                )
        return description

    def rebuild(self, source: Source, say: Callable[[str], object]) -> str:
        """
        Let a rebuilt module take over running trials, and play all trials that begin from now on.

        The module is compiled, and played once, as the previous one was. In a running trial it
        takes over between two frames if both modules export `ark_state_persist` and
        `ark_state_restore`, which carry the state over, or if only code has changed; otherwise the
        trial ends, and the next one uses it. May be called from any thread.

        Args:
            source: The path or the bytes of the module.
            say: Called with sentences about running trials, from any thread.

        Returns:
            The SHA-256 of the module, as hexadecimal digits.

        Raises:
            ModuleError: The module is refused; nothing has changed.
            GuestError: The module failed while it was played; nothing has changed.
            UsageError: The module has other actor classes; nothing has changed.

        Example:
            hosting.rebuild("game.wasm", print)

        """
        before = self._env
        env = self._environment_of(before.host.compile(source))
        try:
            self._require_same_classes(probe(env))
            _close_probed(env)
        except BaseException:
            env.close()
            raise
        rebuilt = RebuiltModule(core_of(env).factory, say, self._undo_rebuild)
        self._rebuilt, self._before, self._env = rebuilt, before.module, env
        self._close_later(before)
        for guest in list(self._guests):
            guest.rebuild(rebuilt)
        return env.module.digest

    def _undo_rebuild(self, module: CompiledModule) -> None:
        """Play the next trials with the module before, unless there is another one already."""
        failed, before, self._before = self._env, self._before, None
        if before is None or failed.module is not module:
            return
        self._rebuilt = None
        self._env = self._environment_of(before)
        self._close_later(failed)

    def _environment_of(self, module: CompiledModule) -> GuestEnv:
        """Return an environment as the first one, of another module in the same host."""
        own = {"host", "wasi", "limits", "threads", "imports", "trace", "digest"}
        given: dict[str, Any] = {
            name: value for name, value in self.options.environment.items() if name not in own
        }
        return _untraced(GuestEnv(**given | {"module": module, "host": self._first.host}))

    def _close_later(self, env: GuestEnv) -> None:
        """Close an environment that plays no more trials, unless it may own the host."""
        if env is not self._first:
            env.close()

    def _require_same_classes(self, classes: Sequence[GuestClass]) -> None:
        """Raise UsageError for classes of actors that running trials and pages do not have."""
        known, found = [_widths(one) for one in self.classes], [_widths(one) for one in classes]
        if known != found:
            raise UsageError(
                f"{self._env.module.name} now has the actors {_listed(found)}, and its trials were"
                f" begun with {_listed(known)}: start the command again"
            )

    def close(self) -> None:
        """Cut off the guests, end the threads and free everything. Safe to call more than once."""
        for worker in self._workers:
            worker.close()
        for policies in self._policies:  # policies of workers that were never started
            policies.close()
        self._policies = []
        self._env.close()
        self._first.close()

    def _start_workers(self, loop: asyncio.AbstractEventLoop) -> None:
        core_of(self._env).factory.require_open()
        loader = loader_of(self._env.host)
        for number in range(self._threads):
            policies = self._policies.pop() if self._policies else None
            resources = loader.shared(unclosed=self._unclosed)
            name = f"arkml-guest-trials-{number}"
            self._workers.append(GuestWorker(name, loop, resources, policies))

    def _guest(self, start: EnvInitialInput) -> TrialGuest:
        """Return the guest of a trial. Raises TrialError and UsageError."""
        config = _parsed(start.config.content)
        names = [actor.name for actor in start.actors_in_trial]
        if sorted(names) != sorted(self._slots):
            raise TrialError(
                f"the actors {', '.join(names)[:200]} are not the slots of the guest:"
                f" {', '.join(self._slots)[:200]}"
            )
        template = core_of(self._env).factory
        if config.HasField("seed"):
            seed = seed_of(config.seed)
            template.script.warn_unseedable()
        else:
            seed = drawn_seed(self._random)
        plan = TrialPlan(
            self.classes,
            [self._slots[name][0] for name in names],
            next(self._numbers),
            seed,
            start.name,
            self.options.end_on,
        )
        rebuilt = self._rebuilt
        if rebuilt is not None and rebuilt.module is not template.module:
            rebuilt = None
        guest = TrialGuest(template.variant(self._settings(config)), plan, rebuilt)
        self._guests.add(guest)
        return guest

    def _settings(self, config: GuestConfig) -> InstanceSettings:
        """Return the settings of an instance: the options, replaced by values of the trial."""
        settings = core_of(self._env).factory.settings
        if config.HasField("configure"):
            settings = replace(settings, configure=config.configure)
        elif config.configure_numbers:
            settings = replace(settings, configure=tuple(config.configure_numbers))
        return replace(settings, args=config.args) if config.HasField("args") else settings

    def _require_config(self, config: GuestConfig) -> None:
        if config.HasField("configure") and config.configure_numbers:
            raise TrialError("the configuration of a trial has configure and configure_numbers")
        settings = self._settings(config)
        try:
            if config.HasField("seed"):
                seed_of(config.seed)
            Script(self._env.module, settings.entry, settings.args, settings.configure)
        except ArkmlError as error:
            raise TrialError(f"the configuration of a trial: {error}") from error

    def _require_slot(self, name: str, actor_class: str) -> None:
        if name not in self._slots:
            raise TrialError(
                f"the actor {name!r} is not a slot of {self._env.module.name}:"
                f" {_listed(list(self._slots))}"
            )
        _, one = self._slots[name]
        if actor_class != one.name:
            raise TrialError(f"the actor {name!r} has the class {one.name}, not {actor_class!r}")


def _untraced(env: GuestEnv) -> GuestEnv:
    """Return an environment whose own guest is not recorded: the first trace is of a trial."""
    core_of(env).factory.is_traced = False
    return env


def _close_probed(env: GuestEnv) -> None:
    """Free the instance of an environment that was probed."""
    instance = core_of(env).set_aside()
    assert instance is not None
    instance.close()


def _widths(one: GuestClass) -> str:
    """Return a text on a class as trials and pages know it, such as "3 walker of 8 features, …"."""
    spec = one.behavior.spec
    choices = f", choices {list(spec.actions.branches)}" if spec.actions.branches else ""
    return (
        f"{one.slots} {one.name} of {one.behavior.num_features} features,"
        f" {one.behavior.num_actions} actions{choices}"
    )


def _parsed(content: bytes) -> GuestConfig:
    try:
        return GuestConfig.FromString(content)
    except DecodeError as error:
        raise TrialError(
            "the configuration of a trial is not an arkmlTrials.GuestConfig"
        ) from error


def _listed(names: Sequence[str]) -> str:
    """Return names in a sentence, of many only the first and the last."""
    if len(names) > _SHOWN:
        return f"{', '.join(names[:3])}, ... {names[-1]}"
    return ", ".join(names)
