"""An environment of many guests of one module, each with one agent, stepped together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Unpack

import numpy as np

from arkml.arrays import Marks, some
from arkml.base.closing import Closing
from arkml.batches import Floats
from arkml.envs.core.agent_slots import NOWHERE
from arkml.envs.core.batch_stepper import BatchStepper
from arkml.envs.core.coercion import drawn_seed, seed_of
from arkml.envs.core.decisions import Behavior, Demonstrations, Step
from arkml.envs.core.env_core import NonReentrant
from arkml.envs.core.env_instance import EnvInstance, frames_ahead
from arkml.envs.core.env_options import GuestEnvOptions
from arkml.envs.core.fleet_step import FleetStep
from arkml.envs.core.guest_env import GuestEnv, core_of
from arkml.envs.core.id_search import Indices
from arkml.errors import GuestError, GuestStalled, StateRefused, UsageError
from arkml.host import Source
from arkml.limits import number_of_guests


class FleetEnv(Closing):
    """
    Steps `num_guests` guests of one module, each with one agent; `options` are as for `GuestEnv`.

    Guests whose agent continues are stepped in lockstep, at little more than the cost of their
    calls. Other guests are stepped one after the other, as are all guests with a `decision_period`.
    A guest that fails or finishes is over until `renew`; the others are not affected. So is a guest
    whose agent has had `max_episode_steps`, and is truncated.
    """

    def __init__(self, module: Source, num_guests: int, **options: Unpack[GuestEnvOptions]) -> None:
        self.num_guests = num_guests = number_of_guests(num_guests, "a fleet of {} guests")
        self.template = GuestEnv(module, **options)
        """The environment with the options of every guest; it is not stepped itself."""
        self._factory = core_of(self.template).factory
        try:
            self._resources = self._factory.shared(num_guests)
        except BaseException:
            self.template.close()
            raise
        self._random = np.random.default_rng()
        self._instances: list[EnvInstance | None] = [None] * num_guests
        self._alive = np.zeros(num_guests, bool)
        self._going: Indices | None = None  # those that are alive, None where that has changed
        self._together: BatchStepper | None = None
        self._call = NonReentrant(self._factory.module.name)
        self._behavior: Behavior | None = None
        self._most_steps = self._factory.settings.max_episode_steps
        self._steps = np.zeros(num_guests, np.int64)  # of the episode of each agent

    @property
    def behavior(self) -> Behavior:
        """The behavior of every agent. Raises UsageError before the first reset."""
        if self._behavior is None:
            raise UsageError("reset the fleet before its first step")
        return self._behavior

    @property
    def alive(self) -> Marks:
        """The guests that are not over, as a mask: bool, [guests]."""
        return self._alive.copy()

    def instance(self, guest: int) -> EnvInstance | None:
        """Return the instance of the guest at an index, None if it is over."""
        return self._instances[guest]

    def reset(self, seed: int | Sequence[int | None] | None = None) -> FleetStep:
        """
        Start over with new instances, up to the first submit of each.

        Args:
            seed: With a number n, guest k gets the seed n + k. A sequence has a seed for each
                guest, None to draw one.

        Raises:
            GuestError: A guest failed before its first submit.

        """
        seeds: Sequence[int | None] = [None] * self.num_guests
        if isinstance(seed, Sequence):
            seeds = [None if given is None else seed_of(given) for given in seed]
        elif seed is not None:
            first = seed_of(seed)
            seeds = range(first, first + self.num_guests)
        self._factory.require_open()
        if len(seeds) != self.num_guests:
            raise UsageError(f"{len(seeds)} seeds for {self.num_guests} guests")
        self._require_seeds(seeds)
        if isinstance(seeds, range):
            self._random = np.random.default_rng(seeds.start)
        return self._whole(lambda: self._reset(seeds))

    def renew(self, guests: Sequence[int], seeds: Sequence[int | None] | None = None) -> FleetStep:
        """
        Replace the instances of some guests by new ones, run up to their first submits.

        `seeds` has a seed for each of these guests, None to draw one. A guest that fails before its
        first submit is over, and its step has the error.
        """
        seeds = [None if given is None else seed_of(given) for given in seeds or ()]
        self._require_seeds(seeds)
        return self._whole(lambda: self._renew(guests, seeds or [None] * len(guests)))

    def step(self, actions: Floats, before: Floats, due: Marks | None = None) -> FleetStep:
        """
        Run each guest that is due to its next submit.

        Args:
            actions: float32, [guests, num_actions], checked; the rows of agents that do not decide
                are not used.
            before: float32, [guests, num_features], the agents' last observations.
            due: bool, [guests], the guests to run; None runs all.

        """
        if self._most_steps is None:
            return self._whole(lambda: self._step(actions, before, due))
        most = self._most_steps
        return self._whole(lambda: self._cut(self._step(actions, before, due), most))

    def take_demonstrations(self, guest: int) -> list[Demonstrations]:
        """Return the demonstrations and augmented rows of a guest since the last call."""
        instance = self._instances[guest]
        return [] if instance is None else instance.experiments.take_given()

    def close(self) -> None:
        """Free all instances. Raises GuestBusy while a call is in progress. Safe to call again."""
        with self._call:
            self._end()
            self.template.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        """Raise StateRefused: guests that are stepped together are not copied."""
        raise StateRefused(
            f"an environment of {self.num_guests:,} guests of {self._factory.module.name} cannot be"
            " copied: make environments of one guest each, as vectorization_mode='sync' does, and"
            " copy those"
        )

    def _require_seeds(self, seeds: Sequence[int | None]) -> None:
        for seed in seeds:
            if seed is not None:
                self._factory.script.require_seed(seed)

    def _whole(self, work: Callable[[], FleetStep]) -> FleetStep:
        """
        Return a step. If it is cut off, for example by Ctrl-C, drop all guests, in unknown states.
        """
        with self._call:
            try:
                return work()
            except BaseException:
                self._end()
                raise

    def _reset(self, seeds: Sequence[int | None]) -> FleetStep:
        if any(given is not None for given in seeds):
            self._factory.script.warn_unseedable()
        self._end()
        steps = {guest: self._begun(guest, given) for guest, given in enumerate(seeds)}
        self._behavior = steps[0].decisions[0].behavior
        factory, settings = self._factory, self._factory.settings
        self._together = BatchStepper(
            factory.module.name,
            self._instances,
            self._resources,
            factory.pace,
            frames_ahead(settings.idle_calls, settings.seconds),
        )
        return self._merged(steps, self._empty_step())

    def _renew(self, guests: Sequence[int], seeds: Sequence[int | None]) -> FleetStep:
        found, steps = self._empty_step(), {}
        for guest, seed in zip(guests, seeds, strict=True):
            self._drop(guest)
            try:
                steps[guest] = self._begun(guest, seed)
            except GuestError as error:
                steps[guest] = Step((), error=error)
            except UsageError as error:
                steps[guest] = Step((), error=self._blame(error))
        return self._merged(steps, found, found.observations)

    def _blame(self, error: UsageError) -> GuestError:
        """Return an error of one guest, for behavior that a fleet does not support."""
        return GuestError(f"{self._factory.module.name}: {error}")

    def _step(self, actions: Floats, before: Floats, due: Marks | None) -> FleetStep:
        behavior, together = self.behavior, self._together
        if together is None:
            self._factory.require_open()
            raise UsageError("reset the fleet before its next step")
        going = self._all_alive() if due is None else np.flatnonzero(self._alive & due)
        single = NOWHERE
        if behavior.spec.decision_period == 1:
            single = together.waiting(going)
            together.write(actions)  # for agents that have ended the shim sends none
        arrived, left, asked = together.run(single) if len(single) else (single, [], [])
        found = self._empty_step()
        found.alone.update(asked)
        if len(arrived):
            others = together.show(arrived, found, behavior)
            left += [(guest, EnvInstance.look) for guest in others.tolist()]
        steps = {guest: self._after(guest, shown) for guest, shown in left}
        if len(single) < len(going):
            alone = np.setdiff1d(going, single)
            steps.update({guest: self._alone(guest, actions) for guest in alone.tolist()})
        return self._merged(steps, found, before) if steps else found

    def _cut(self, step: FleetStep, most: int) -> FleetStep:
        """Truncate the agents that have had their steps; their guests are over."""
        ended = step.ended
        self._steps += step.present
        self._steps[step.started | ended] = 0
        cut = step.present & ~ended & (self._steps >= most)
        if some(cut):
            step.truncated |= cut
            guests = np.flatnonzero(cut).tolist()
            for guest in guests:
                step.steps.setdefault(guest, Step((), is_cut=True))
                self._drop(guest)
            assert self._together is not None
            self._together.settle(guests)
        return step

    def _empty_step(self) -> FleetStep:
        return FleetStep.empty(self.num_guests, self.behavior.num_features)

    def _merged(
        self, steps: dict[int, Step], found: FleetStep, before: Floats | None = None
    ) -> FleetStep:
        """
        Add the outcomes of single guests, and drop the guests that are over.

        With `before` a guest that a fleet cannot step fails; without it that raises UsageError.
        """
        for guest, step in sorted(steps.items()):
            if before is None:
                found.take(guest, step, self.behavior, found.observations[guest])
                continue
            try:
                found.take(guest, step, self.behavior, before[guest])
            except UsageError as error:
                found.fail(guest, self._blame(error), before[guest])
            if found.steps[guest].has_ended:
                self._drop(guest)
        assert self._together is not None
        self._together.settle(list(steps))
        return found

    def _begun(self, guest: int, seed: int | None) -> Step:
        """Step a new instance to its first submit."""
        drawn = drawn_seed(self._random) if seed is None else seed
        self._steps[guest] = 0
        instance = self._instances[guest] = self._factory.make(
            drawn, self._resources, index=guest if self.num_guests > 1 else None
        )
        self._set_alive(guest, True)
        step = instance.run()
        if not step.has_ended:
            self._factory.warn_undeclared(instance)
            return step
        self._drop(guest)
        self._factory.require_behavior(instance)
        raise (
            instance.experiments.refused
            or step.error
            or GuestStalled(f"{instance.guest.name} came to its end without a submit")
        )

    def _after(self, guest: int, shown: Callable[[EnvInstance], Step]) -> Step:
        """Return the step of a guest that left the lockstep, which `shown` returns."""
        instance, together = self._instances[guest], self._together
        assert instance is not None
        assert together is not None
        together.catch_up(guest)
        return shown(instance)

    def _alone(self, guest: int, values: Floats) -> Step:
        """Step a guest by itself, outside of the lockstep."""
        instance, together = self._instances[guest], self._together
        assert instance is not None
        assert instance.pending is not None
        assert together is not None
        together.catch_up(guest)
        count = instance.pending.tracker.acting_count
        instance.answer(values[guest : guest + 1][:count])
        return instance.run()

    def _drop(self, guest: int) -> None:
        instance, self._instances[guest] = self._instances[guest], None
        self._set_alive(guest, False)
        if instance is not None:
            instance.close()

    def _set_alive(self, guest: int, is_alive: bool) -> None:
        self._alive[guest], self._going = is_alive, None

    def _all_alive(self) -> Indices:
        """Return the guests that are not over: one array as long as they are the same."""
        if self._going is None:
            self._going = np.flatnonzero(self._alive)
        return self._going

    def _end(self) -> None:
        self._together = None
        for guest in range(self.num_guests):
            self._drop(guest)
