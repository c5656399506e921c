"""An environment of many guests of one module, each with one agent, stepped together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Unpack

import numpy as np

from arkml.batches import Floats
from arkml.closing import Closing
from arkml.envs.core.batch_stepper import BatchStepper, Left
from arkml.envs.core.coercion import drawn_seed, seed_of
from arkml.envs.core.decisions import Behavior, Demonstrations, Marks, Step
from arkml.envs.core.env_instance import EnvInstance
from arkml.envs.core.fleet_step import FleetStep
from arkml.envs.core.guest_env import GuestEnv
from arkml.envs.core.non_reentrant import NonReentrant
from arkml.envs.core.options import GuestEnvOptions
from arkml.errors import GuestError, GuestStalled, UsageError
from arkml.host import Source


class FleetEnv(Closing):
    """
    Steps `num_guests` guests of one module, each with one agent; `options` are those of GuestEnv.

    Those whose agent just runs on go together, at little more than the cost of the calls; the
    others one after the other, as does everybody with a `decision_period`. A guest that fails or
    finishes is over until `renew`, and changes nothing for the rest.
    """

    def __init__(self, module: Source, num_guests: int, **options: Unpack[GuestEnvOptions]) -> None:
        if num_guests < 1:
            raise UsageError(f"a fleet of {num_guests} guests: 1 at least")
        self.num_guests = num_guests
        self.template = GuestEnv(module, **options)
        """What the guests are made like; it is not stepped itself."""
        self._random = np.random.default_rng()
        self._lives: list[EnvInstance | None] = [None] * num_guests
        self._alive = np.zeros(num_guests, bool)
        self._everybody = np.arange(num_guests)
        self._together: BatchStepper | None = None
        self._call = NonReentrant(self.template.program.name)
        self._behavior: Behavior | None = None
        try:
            self._resources = self.template.shared(num_guests)
        except BaseException:
            self.template.close()
            raise

    @property
    def behavior(self) -> Behavior:
        """That of every agent. Raises UsageError before the first reset."""
        if self._behavior is None:
            raise UsageError("reset the fleet before its first step")
        return self._behavior

    @property
    def alive(self) -> Marks:
        """Which guests go on, bool, [guests]."""
        return self._alive.copy()

    def life(self, guest: int) -> EnvInstance | None:
        """The instance of a guest that goes on."""
        return self._lives[guest]

    def reset(self, seed: int | Sequence[int | None] | None = None) -> FleetStep:
        """
        Start over with new instances, up to the first submit of each.

        `seed` is that of the first guest, the next ones have the next ones; or it is one for each,
        None to have it drawn. Raises GuestError if a guest does not come so far.
        """
        seeds: Sequence[int | None] = [None] * self.num_guests
        if isinstance(seed, Sequence):
            seeds = [None if given is None else seed_of(given) for given in seed]
        elif seed is not None:
            first = seed_of(seed)
            self._random = np.random.default_rng(first)
            seeds = range(first, first + self.num_guests)
        self.template.require_open()
        if len(seeds) != self.num_guests:
            raise UsageError(f"{len(seeds)} seeds for {self.num_guests} guests")
        with self._whole_call():
            if any(given is not None for given in seeds):
                self.template.script.warn_unseedable()
            self._end()
            steps = {guest: self._begun(guest, given) for guest, given in enumerate(seeds)}
            self._behavior = steps[0].decisions[0].behavior
            self._together = BatchStepper(
                self.template.program.name, self._lives, self._resources, self.template.pace
            )
            return self._told(steps, self._nobody())

    def renew(self, guests: Iterable[int]) -> FleetStep:
        """
        Put new instances in the places of guests, up to the first submit of each.

        One that does not come so far is over, and its step has the error.
        """
        with self._whole_call():
            found, steps = self._nobody(), {}
            for guest in guests:
                self._drop(guest)
                try:
                    steps[guest] = self._begun(guest, None)
                except GuestError as error:
                    steps[guest] = Step((), error=error)
                except UsageError as error:
                    steps[guest] = Step((), error=self._blame(error))
            return self._told(steps, found, found.observations)

    def step(self, actions: Floats, before: Floats, due: Marks | None = None) -> FleetStep:
        """
        Go on to the next submit of each guest that is `due`, bool, [guests], or of all.

        actions: float32, [guests, num_actions], checked; those of agents that do not decide are not
        used. before: float32, [guests, num_features], what the agents showed last.
        """
        with self._whole_call():
            return self._step(actions, before, due)

    def take_demonstrations(self, guest: int) -> list[Demonstrations]:
        """The rows with actions of their own that a guest gave since the last call."""
        life = self._lives[guest]
        return [] if life is None else life.experiments.take_given()

    def close(self) -> None:
        """Free all instances. Raises GuestBusy while a call is in progress. Safe to call again."""
        with self._call:
            self._end()
            self.template.close()

    @contextmanager
    def _whole_call(self) -> Iterator[None]:
        """After one that was cut off, by Ctrl-C, nobody knows how far each guest has come."""
        with self._call:
            try:
                yield
            except BaseException:
                self._end()
                raise

    def _blame(self, error: UsageError) -> GuestError:
        """What one guest does that is not for a fleet."""
        return GuestError(f"{self.template.program.name}: {error}")

    def _step(self, actions: Floats, before: Floats, due: Marks | None) -> FleetStep:
        behavior, together = self.behavior, self._together
        if together is None:
            self.template.require_open()
            raise UsageError("reset the fleet before its next step")
        values = actions if together.acts.all() else actions * together.acts[:, None]
        going = self._everybody
        if due is not None or not self._alive.all():
            going = np.flatnonzero(self._alive if due is None else self._alive & due)
        single = going[:0]
        if behavior.spec.decision_period == 1:
            single = together.waiting(going)
            together.write(values)
        arrived, left = together.run(single) if len(single) else (single, [])
        found = self._nobody()
        others = together.show(arrived, found) if len(arrived) else arrived
        left += [(guest, Left.SUBMITTED) for guest in others.tolist()]
        steps = {guest: self._after(guest, where) for guest, where in left}
        if len(single) < len(going):
            alone = np.setdiff1d(going, single)
            steps.update({guest: self._alone(guest, values) for guest in alone.tolist()})
        return self._told(steps, found, before) if steps else found

    def _nobody(self) -> FleetStep:
        return FleetStep.nobody(self.num_guests, self.behavior.num_features)

    def _told(
        self, steps: dict[int, Step], found: FleetStep, before: Floats | None = None
    ) -> FleetStep:
        """
        Add what single guests show; those that are over are dropped.

        With `before` one that is none of a fleet fails alone, otherwise that raises UsageError.
        """
        for guest, step in sorted(steps.items()):
            if before is None:
                found.take(guest, step, self.behavior, found.observations[guest])
                continue
            try:
                found.take(guest, step, self.behavior, before[guest])
            except UsageError as error:
                found.fail(guest, self._blame(error), before[guest])
            if found.steps[guest].is_over:
                self._drop(guest)
        assert self._together is not None
        self._together.settle(list(steps))
        return found

    def _begun(self, guest: int, seed: int | None) -> Step:
        """A new instance at its first submit."""
        drawn = drawn_seed(self._random) if seed is None else seed
        life = self._lives[guest] = self.template.born(drawn, self._resources)
        self._alive[guest] = True
        step = life.run()
        if not step.is_over:
            return step
        self._drop(guest)
        self.template.require_behavior(life)
        raise (
            life.experiments.refused
            or step.error
            or GuestStalled(f"{life.guest.name} came to its end without a submit")
        )

    def _after(self, guest: int, where: Left) -> Step:
        """A guest that was gone on with, and did something else than the others."""
        life, together = self._lives[guest], self._together
        assert life is not None
        assert together is not None
        together.catch_up(guest)
        if where is Left.SUBMITTED:
            return life.look()
        return life.after_call() if where is Left.ENDED else life.go_on()

    def _alone(self, guest: int, values: Floats) -> Step:
        """A guest that is gone on with by itself."""
        life, together = self._lives[guest], self._together
        assert life is not None
        assert life.pending is not None
        assert together is not None
        together.catch_up(guest)
        count = len(life.pending.decision.deciding)
        life.answer(values[guest : guest + 1][:count])
        return life.run()

    def _drop(self, guest: int) -> None:
        life, self._lives[guest] = self._lives[guest], None
        self._alive[guest] = False
        if life is not None:
            life.close()

    def _end(self) -> None:
        self._together = None
        for guest in range(self.num_guests):
            self._drop(guest)
