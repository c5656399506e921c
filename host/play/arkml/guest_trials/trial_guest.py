"""The guest of one trial, which its worker steps from actions of a tick to observations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from arkml.base.closing import Closing
from arkml.envs.core.decisions import Decision, Step
from arkml.envs.core.env_instance import EnvInstance
from arkml.envs.core.instance_factory import InstanceFactory
from arkml.errors import ArkmlError, CmdletFailed, GuestError, GuestStalled
from arkml.guest_trials.class_side import CHANNEL, ClassSide, answer_of
from arkml.guest_trials.guest_trials_options import EndOn, StandInActions, StandInRows
from arkml.guest_trials.probe import GuestClass
from arkml.guest_trials.rebuilding import RebuiltModule
from arkml.guests.instance import SharedResources
from arkml.guests.reloading import FIRST_CALLS, Reloaded, way_of
from arkml.trials.core.hosting import Acted, HostedRewards, StandIn
from arkml.trials.wire.environment_pb2 import EnvRunTrialOutput, ObservationSet

SLOT_BITS: Final = 16
"""The low bits of the key of a slot, which number it in its trial."""

_CAME = {
    Reloaded.KEPT: "reloaded in this trial, its state was kept: only code has changed",
    Reloaded.HANDED_OVER: "reloaded in this trial, its state was handed over by ark_state_persist,"
    " and its agents begin new episodes",
}


@dataclass(slots=True)
class TickResult:
    """
    The outcome of one step of a guest: rewards, answers, observations, and proposed actions.

    `ended` are the actors whose episodes have ended, if people are told about the game.
    `observations` is None if the guest failed; `error` then says why.
    """

    rewards: list[HostedRewards] = field(default_factory=list)
    answers: list[EnvRunTrialOutput] = field(default_factory=list)
    observations: ObservationSet | None = None
    stand_ins: Sequence[StandIn] = ()
    ended: list[int] = field(default_factory=list)
    is_last: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """
    How a guest plays one trial: the order of its slots, its seed and its names.

    Attributes:
        order: The slot of each actor of the trial; slots of the first class have the lowest
            numbers.
        key: The number of the trial.
        seed: The seed of the guest.
        environment: The name of the environment, as the sender of rewards.

    """

    classes: Sequence[GuestClass]
    order: Sequence[int]
    key: int
    seed: int
    environment: str
    end_on: EndOn = None


@dataclass(frozen=True, slots=True)
class _Former:
    """The instance that gave its state to one of a module `rebuilt`, which has yet to submit."""

    factory: InstanceFactory
    instance: EnvInstance
    rebuilt: RebuiltModule

    def leave(self) -> None:
        """Close the instance, as the other one has taken its state and plays on."""
        self.instance.calls.instance.replaced()
        self.close()
        self.rebuilt.say(_CAME[Reloaded.HANDED_OVER])

    def refuse(self, error: ArkmlError) -> None:
        """Say that the instance plays on; a module that just refused the state is played later."""
        if isinstance(error, CmdletFailed):
            self.rebuilt.say(
                f"not reloaded in this trial, in which the module before goes on; the next one"
                f" plays it: {error}"
            )
        else:
            self.rebuilt.undo(self.rebuilt.module)
            self.rebuilt.say(f"not reloaded, the module before goes on: {error}")

    def close(self) -> None:
        """Free the instance."""
        self.instance.close()
        self.factory.close()


class TrialGuest(Closing):
    """The guest of one trial, an instance that `factory` makes. One thread uses it."""

    def __init__(
        self, factory: InstanceFactory, plan: TrialPlan, rebuilt: RebuiltModule | None = None
    ) -> None:
        """
        Take the factory of a trial's guest, of the module `rebuilt` if that is on trial.

        Args:
            factory: Makes the instance, and is closed with it.
            plan: The trial.
            rebuilt: The module of the factory if it has taken over and has yet to play.

        """
        self._factory = factory
        self._plan = plan
        self._tried, self._tried_from = rebuilt, 0
        self._rebuilt: RebuiltModule | None = None
        self._is_outdated = False
        self._instance: EnvInstance | None = None
        self._resources: SharedResources | None = None
        self._next: InstanceFactory | None = None  # of the module that gets the state
        self._former: _Former | None = None  # until that module has submitted
        self._waiting: ClassSide | None = None
        self._tick = 0  # the tick of the next observations
        count = len(plan.order)
        actors = [0] * count
        for actor, slot in enumerate(plan.order):
            actors[slot] = actor
        self._sides: dict[str, ClassSide] = {}
        first = 0
        for one in plan.classes:
            places = actors[first : first + one.slots]
            key = (plan.key << SLOT_BITS) + first
            side = ClassSide(one, places, count, key, plan.environment)
            self._sides[one.behavior.name] = side
            first += one.slots
        self._order = None if actors == sorted(actors) else plan.order
        self._idle = [StandIn(b"")] * count

    @property
    def keys(self) -> range:
        """The keys of all slots."""
        first = self._plan.key << SLOT_BITS
        return range(first, first + len(self._idle))

    def tell(self, sender: str, content: bytes) -> bool:
        """
        Queue a message for the guest's next frame; the guest's answer goes to `sender`.

        May be called from any thread. Returns False for a guest that takes no messages, because it
        lacks the export or runs in a single call.
        """
        script = self._factory.script
        message = CHANNEL.bytes_le + content
        return script.frame is not None and script.messages.add(message, sender)

    def rebuild(self, rebuilt: RebuiltModule) -> None:
        """
        Continue with a rebuilt module after the next frame; if that is impossible, end the trial.

        May be called from any thread.
        """
        self._rebuilt = rebuilt

    def begin(self, resources: SharedResources) -> TickResult:
        """
        Make the instance of the guest, and run it to its first submit. Raises GaveWay as `step`.
        """
        self._resources = resources
        try:
            instance = self._made(resources)
        except GuestError as error:
            return self._failed(error)
        return self._ran(instance, instance.run)

    def step(self, acted: Sequence[Acted] | None) -> TickResult:
        """
        Apply the actions of a tick, and run the guest to its next submit.

        `acted` has one action for each actor; None applies the proposed actions. Raises GaveWay for
        a guest that has used its turn, or waits: `run_on` continues it.
        """
        instance, side = self._instance, self._waiting
        if instance is None:
            return TickResult(error="the guest has ended")
        if self._rebuilt is not None and self._former is None:
            rebuilt, self._rebuilt = self._rebuilt, None
            self._take(instance, rebuilt)
        if side is not None:
            instance.answer(side.offered() if acted is None else side.applied(acted))
        elif instance.pending is not None:  # a submit of ended rows alone
            width = instance.pending.decision.behavior.num_actions
            instance.answer(np.zeros((0, width), np.float32))
        return self._ran(instance, instance.run)

    def run_on(self) -> TickResult:
        """Continue a step of a guest that gave way. Raises GaveWay."""
        instance = self._instance
        if instance is None:
            return TickResult(error="the guest has ended")
        return self._ran(instance, instance.run_on)

    def waiting(self) -> StandInRows | None:
        """Return the rows of agents that wait for an action, None if there are none."""
        return None if self._waiting is None else self._waiting.waiting()

    def offer(self, result: TickResult, given: StandInActions | None) -> None:
        """Add proposed actions to the result of a step; None proposes the default actions."""
        side = self._waiting
        result.stand_ins = self._idle if side is None else side.offer(given)

    def close(self) -> None:
        """
        Free the instance. Safe to call more than once.

        Raises GuestBusy while a call is in progress.
        """
        instance, self._instance = self._instance, None
        self._waiting = None
        if instance is not None:
            instance.close()
        self._factory.close()
        if self._former is not None:
            self._former.close()

    def _made(self, resources: SharedResources, state: bytes | None = None) -> EnvInstance:
        """Make the instance. Raises GuestError."""
        instance = self._factory.make(self._plan.seed, resources, state=state)
        instance.gives_way = True
        instance.calls.fiber.shorten_turns()
        self._instance = instance
        return instance

    def _ran(self, instance: EnvInstance, run: Callable[[], Step]) -> TickResult:
        try:
            step = run()
            if step.has_finished and not self._tick:
                raise GuestStalled(f"{instance.guest.name} came to its end without a submit")
            if instance.handed_over is not None:
                return self._succeeded(instance, step, instance.handed_over)
            result = self._shown(instance, step)
        except GuestError as error:
            return self._failed(error)
        if self._former is not None:
            self._former.leave()
            self._former = None
        return result

    def _succeeded(self, instance: EnvInstance, step: Step, state: bytes) -> TickResult:
        """Show the end of an instance's agents, and let one of the rebuilt module play on."""
        resources, before, tried = self._resources, self._factory, self._tried
        assert self._next is not None
        assert resources is not None
        assert tried is not None
        result = self._shown(instance, replace(step, has_finished=False))
        self._former = _Former(before, instance, tried)
        self._factory, self._next = self._next, None
        self._factory.numbers = before.numbers
        self._factory.script.messages.waiting.extend(before.script.messages.waiting)
        try:
            made = self._made(resources, state)
        except ArkmlError as error:
            self._go_back(self._former, error)
        else:
            made.world.skip(instance.world.reading() - made.world.reading())
        return result

    def _go_back(self, former: _Former, error: ArkmlError) -> None:
        """Let the instance before play on: the rebuilt module failed before its first submit."""
        made, failed = self._instance, self._factory
        former.factory.script.messages.waiting.extend(failed.script.messages.waiting)
        if made is not None and made is not former.instance:
            made.close()
        failed.close()
        self._factory, self._instance = former.factory, former.instance
        self._former = self._tried = None
        former.instance.handed_over = None
        former.refuse(error)

    def _shown(self, instance: EnvInstance, step: Step) -> TickResult:
        """Return the result of a step. Raises the error of a guest that failed."""
        if instance.experiments.refused is not None and step.has_ended:
            raise GuestError(str(instance.experiments.refused))
        if step.error is not None:
            raise step.error
        result = TickResult()
        self._waiting = None
        shown: dict[ClassSide, list[bytes]] = {}
        for decision in step.decisions:
            side = self._sides.get(decision.behavior.name)
            if side is None:
                raise self._unexpected(decision)
            shown[side] = side.take(decision)
            result.rewards.append(side.rewards)
            result.ended += side.ended
            if side.is_waiting:
                self._waiting = side
        observed: list[bytes] = []
        for side in self._sides.values():
            observed += shown[side] if side in shown else side.absent()
        if self._order is not None:
            observed = [observed[slot] for slot in self._order]
        messages = self._factory.script.messages
        if messages.answers:
            result.answers += [answer_of(*one) for one in messages.take_answers()]
        result.observations = ObservationSet(  # for a tick that begins now
            tick_id=self._tick,
            timestamp=time.time_ns(),
            observations=observed,
            actors_map=range(len(observed)),
        )
        self._tick += 1
        is_over = self._is_outdated or (self._plan.end_on is not None and self._is_over())
        result.is_last = step.has_finished or is_over
        return result

    def _unexpected(self, decision: Decision) -> GuestError:
        """Return the error for a decision of a behavior that has no slots."""
        return GuestError(
            f"the guest submits for {decision.behavior.name!r}, which it did not when its slots"
            f" were counted: there are {', '.join(self._sides)}"
        )

    def _is_over(self) -> bool:
        """Return whether the episodes that the trial lasts for have ended."""
        slots = [side.slots for side in self._sides.values()]
        if self._plan.end_on == "first":
            return any(one.has_ended for one in slots)
        return all(one.has_begun and not one.first_live for one in slots)

    def _take(self, instance: EnvInstance, rebuilt: RebuiltModule) -> None:
        """Let a rebuilt module take over in the next frame, or the trial end."""
        say, way = rebuilt.say, way_of(instance.guest.module, rebuilt.module)
        if instance.is_one_call or way is Reloaded.ANEW:
            self._is_outdated = True
            say("reloaded, its state begins anew in the next trial: this one ends")
            return
        if way is Reloaded.HANDED_OVER:
            try:
                self._next = rebuilt.factory.variant(self._factory.settings)
            except ArkmlError as error:
                say(f"not reloaded, the module before goes on in this trial: {error}")
                return

        def taken(refused: ArkmlError | None) -> None:
            if refused is not None:
                say(f"not reloaded, the module before goes on in this trial: {refused}")
                return
            self._tried, self._tried_from = rebuilt, self._tick
            if way is Reloaded.KEPT:
                say(_CAME[way])

        if way is Reloaded.KEPT:
            instance.rebuild(rebuilt.module, taken)
        else:
            instance.hand_over(taken)

    def _failed(self, error: GuestError) -> TickResult:
        former = self._former
        if former is not None:
            self._go_back(former, error)
            return self._ran(former.instance, former.instance.run)
        tried, self._tried = self._tried, None
        if tried is not None and self._tick - self._tried_from < FIRST_CALLS:
            tried.undo(tried.module)
            tried.say(
                f"failed right after a reload, the next trial plays the module before: {error}"
            )
        self.close()
        return TickResult(error=str(error))
