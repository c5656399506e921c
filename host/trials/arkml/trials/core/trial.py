"""
One trial without any I/O: messages and the time go in, what is to be done comes out.

- Inputs take the time in seconds of one steady clock; only timestamps are asked for here.
- Inputs never raise for what others send. A breach of the protocol by the environment or by a
  required actor ends the trial, hard, and one by an optional actor costs it its place.
- Outputs are collected, and taken in order with `take`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from arkml.trials.core.admission import Admission
from arkml.trials.core.clock import TrialClock
from arkml.trials.core.ending import TrialEnding
from arkml.trials.core.error import TrialError
from arkml.trials.core.hosted_side import HostedSide
from arkml.trials.core.hosted_turn import LATE, HostedTurn
from arkml.trials.core.hosting import (
    Pacing,
    is_left_to_stand_in,
)
from arkml.trials.core.mail import Mail
from arkml.trials.core.observations import PresentObservations
from arkml.trials.core.outgoing import Outgoing, shortened
from arkml.trials.core.outputs import EntryKind, Output
from arkml.trials.core.places import ActorPlace, Breach, EnvironmentPlace
from arkml.trials.core.states import (
    ACTOR,
    ENDED,
    HOSTED_ACTOR,
    INITIALIZING,
    PENDING,
    RUNNING,
    TRIAL,
    Move,
    Phase,
    TrialCause,
)
from arkml.trials.core.ticks import Ticks
from arkml.trials.core.turn import TrialTurn, TurnRules
from arkml.trials.wire.actor_pb2 import (
    ActorInitialOutput,
    ActorRunTrialInput,
    ActorRunTrialOutput,
)
from arkml.trials.wire.common_pb2 import CommunicationState, TrialActor, TrialParams, TrialState
from arkml.trials.wire.environment_pb2 import EnvRunTrialInput, EnvRunTrialOutput, ObservationSet
from arkml.trials.wire.players_pb2 import View

NORMAL, HEARTBEAT = CommunicationState.NORMAL, CommunicationState.HEARTBEAT
LAST, LAST_ACK, END = CommunicationState.LAST, CommunicationState.LAST_ACK, CommunicationState.END


class Trial:
    """
    The state machine of one trial; the top of this module has its rules.

    `state` is one of TrialState, and `is_over` says that it is ENDED; `reason` is why it was cut
    off, or ended by its server. `began` is the time of its start and `ended` that of its present
    state, in nanoseconds since 1970. Without `is_logged` there are no entries among its outputs,
    unless its parameters name a datalog, and without `is_shown` no views. A trial that begins with
    a Pacing is hosted.
    """

    def __init__(
        self,
        trial_id: str,
        user_id: str,
        *,
        is_logged: bool = False,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self.id = trial_id
        self.user_id = user_id
        self.state = INITIALIZING
        self.is_over = False
        self.reason = ""
        self.params = TrialParams()
        self.began = self.ended = wall()
        self.actors: list[ActorPlace] = []
        self.environment = EnvironmentPlace("")
        self.is_shown = False
        self.hosted: HostedSide | None = None
        self._outgoing = Outgoing(wall, is_logged=is_logged)
        self._set_up(None, now=0.0)

    @property
    def tick(self) -> int:
        """Number of the last observations, 0 before."""
        return self._outgoing.tick

    @property
    def latest(self) -> ObservationSet | None:
        """A copy of the last observations, with their tick and time; None before the first."""
        return self._observations.latest()

    @property
    def is_hosted(self) -> bool:
        """True if its environment stands in for actors."""
        return self.hosted is not None

    @property
    def duration(self) -> int:
        """Nanoseconds from the start to now, or to the end."""
        until = self.ended if self.is_over else self._outgoing.wall()
        return max(0, until - self.began)  # clocks may be set back

    def take(self) -> list[Output]:
        """Return what is to be done, in order, and forget it."""
        return self._outgoing.take()

    def trial_actors(self) -> list[TrialActor]:
        """Return names and classes of all actors, in trial order."""
        return self._admission.actors()

    # From the parameters to the first tick

    def begin(self, params: TrialParams, now: float, pacing: Pacing | None = None) -> None:
        """Take the final parameters, which were checked, and wait for the actors."""
        self.params = params
        self._outgoing.is_logged |= bool(params.datalog.endpoint)
        self.environment = EnvironmentPlace(params.environment.name)
        table = ACTOR if pacing is None else HOSTED_ACTOR
        self.actors = [ActorPlace(index, actor, table) for index, actor in enumerate(params.actors)]
        for actor in self.actors:
            if pacing is not None and is_left_to_stand_in(actor.params):
                actor.take(Move.STAND_BY)
        is_end_requested = self._ending.is_requested
        self._set_up(pacing, now)
        self._ending.is_requested = is_end_requested
        self._change(TrialCause.PARAMETERS)
        self._admission.call_actors()
        if not self._admission.awaited:
            self._call_environment(now)

    def _set_up(self, pacing: Pacing | None, now: float) -> None:
        """Make the parts of the trial for its present actors."""
        actors, environment, outgoing = self.actors, self.environment, self._outgoing
        self._admission = Admission(self.id, actors, environment, outgoing, now)
        observations = self._observations = PresentObservations(actors, outgoing)
        hosted = None
        if pacing is not None:
            hosted = HostedTurn(actors, observations, outgoing, pacing, self.user_id)
        self._turn: TurnRules = hosted or TrialTurn(actors, observations, outgoing)
        self._mail = Mail(actors, environment, self.params.nb_buffered_ticks, outgoing)
        self._ending = TrialEnding(actors, environment)
        most_idle = self.params.max_inactivity
        self._clock = TrialClock(self._admission, self._turn, self._ending, most_idle)
        self._ticks = Ticks(
            environment, self._turn, observations, self._mail, self._ending, outgoing, self._change
        )
        if hosted is not None:
            self.hosted = HostedSide(
                hosted, environment, self._admission, self._mail, self._clock, self._ticks, self.cut
            )

    def slot(self, selection: ActorInitialOutput) -> int:
        """
        Return the index of the free slot that an actor asks for, by name or by class.

        Raises TrialError where it cannot join.
        """
        if self.state != PENDING:
            name = TrialState.Name(self.state)
            raise TrialError(f"trial {self.id} is {name}: actors join while it is PENDING")
        return self._admission.slot(selection)

    def join(self, index: int, now: float) -> None:
        """Take in an actor that joined by itself, in a slot that `slot` has returned."""
        self._admission.admit(index)
        self._arrive(now)

    def _arrive(self, now: float) -> None:
        """Await one actor less; after the last one the environment is called."""
        if not self._admission.settle() or self.is_over:
            return
        if self.hosted is None and not any(actor.is_present for actor in self.actors):
            text = "no actor takes part: the environment plays without any"
            self._outgoing.note(text, is_warning=True)
        self._call_environment(now)

    def _call_environment(self, now: float) -> None:
        self._admission.call_environment(self.params.environment)
        self._ticks.start()
        self._clock.start(now)

    # What is of hosted trials alone

    def slot_to_take_over(self, selection: ActorInitialOutput) -> int:
        """
        Return the index of the actor that a person asks for, which may have a player that is away.

        Raises TrialError where it cannot be taken over.
        """
        if self.hosted is None:
            raise TrialError(f"trial {self.id} is not hosted: its actors cannot be taken over")
        if self.state not in (PENDING, RUNNING):
            name = TrialState.Name(self.state)
            raise TrialError(f"trial {self.id} is {name}: people play while it is RUNNING")
        return self._admission.slot_to_take_over(selection, self.hosted.turn.is_away)

    def view(self) -> View:
        """Return the present tick of a hosted trial for those who look at it."""
        assert self.hosted is not None
        return self.hosted.turn.view(self._mail.delivered(), self.state, self.reason)

    # What is sent to the trial

    def from_actor(self, index: int, message: ActorRunTrialOutput, now: float) -> None:
        """Take in a message of an actor."""
        if self.is_over:
            return
        self._clock.note_activity(now)
        try:
            self._hear_actor(self.actors[index], message, now)
        except Breach as breach:
            self.lose_actor(index, f"it broke the protocol: {breach}", now)

    def from_environment(self, message: EnvRunTrialOutput, now: float) -> None:
        """Take in a message of the environment."""
        if self.is_over:
            return
        self._clock.note_activity(now)
        try:
            self._hear_environment(message, now)
        except Breach as breach:
            self.cut(f"the environment broke the protocol: {breach}")

    def _hear_actor(self, actor: ActorPlace, message: ActorRunTrialOutput, now: float) -> None:
        state, kind = message.state, message.WhichOneof("data")
        if state == NORMAL and kind == "action":
            actor.take(Move.PLAY)
            self._turn.take(actor, message.action, now)
            if self._turn.is_complete:
                self._ticks.act_if_complete(now)
        elif state == NORMAL and kind == "reward":
            actor.take(Move.TALK)
            self._mail.take_reward(actor.name, message.reward)
        elif state == NORMAL and kind == "message":
            actor.take(Move.TALK)
            self._mail.take_message(actor.name, message.message)
        elif state == NORMAL and kind == "init_output":
            actor.take(Move.ACCEPT)
            self._arrive(now)
        elif state == HEARTBEAT:
            self._outgoing.to_actor(actor.index, ActorRunTrialInput(state=HEARTBEAT))
        elif state == LAST_ACK:
            actor.take(Move.ACKNOWLEDGE)
            self._ending.leaving -= 1
            self._end_if_all_left()
        elif state == END:
            self.lose_actor(actor.index, shortened(message.details) or "it left", now)
        else:
            raise Breach.of(state, kind)

    def _hear_environment(self, message: EnvRunTrialOutput, now: float) -> None:
        state, kind = message.state, message.WhichOneof("data")
        place = self.environment
        if state == NORMAL and kind == "observation_set":
            self._ticks.observe(message.observation_set)
            steps = self.params.max_steps
            if self.hosted is not None:
                self.hosted.allow_ahead(self.tick, steps, is_shown=self.is_shown)
            if self.is_shown:
                self._outgoing.show(self.view())
            self._ticks.begin(steps, now)
            self._end_if_all_left()
        elif state == NORMAL and kind == "reward":
            place.take(Move.TALK)
            self._mail.take_reward(place.name, message.reward)
        elif state == NORMAL and kind == "message":
            place.take(Move.TALK)
            self._mail.take_message(place.name, message.message)
        elif state == NORMAL and kind == "init_output":
            place.take(Move.ACCEPT)
        elif state == HEARTBEAT:
            self._outgoing.to_environment(EnvRunTrialInput(state=HEARTBEAT))
        elif state == LAST:
            self._take_announcement(now)
        elif state == LAST_ACK:
            if self._ending.is_last_due:
                raise Breach("it sent LAST_ACK before its last observations")
            place.take(Move.ACKNOWLEDGE)
            self._mail.deliver_rewards()  # which actors may wait for before they acknowledge
            self._end_if_all_left()
        elif state == END:
            self.lose_environment(shortened(message.details) or "it left")
        else:
            raise Breach.of(state, kind)

    # The end

    def terminate(self, now: float, reason: str = "") -> None:
        """
        Request the end: the next actions are the last.

        A trial that does not run yet waits for its actors first, and has one tick.
        """
        self.reason = self.reason or reason
        if self.state in (INITIALIZING, PENDING, RUNNING):
            self._clock.note_activity(now)
            if not self._ending.is_requested:
                self._outgoing.log(EntryKind.EVENT, note="the end was requested")
            self._ending.is_requested = True
            self._change(TrialCause.SOFT_END)
            self._ticks.act_if_complete(now)

    def cut(self, reason: str) -> None:
        """End the trial at once: all get END with the reason, and no last observation."""
        if not self.is_over:
            self.reason = reason
            self._outgoing.note(reason)
            self._outgoing.end_all(reason)
            self._change(TrialCause.HARD_END)

    def lose_actor(self, index: int, reason: str, now: float) -> None:
        """Note that an actor has gone; a required one ends a trial that is not hosted."""
        actor = self.actors[index]
        if self.is_over or not (actor.is_present or actor.is_awaited):
            return
        was_awaited, was_leaving = actor.is_awaited, actor.phase is Phase.LEAVING
        actor.take(Move.LOSE)
        self._outgoing.end_actor(index, reason)
        text = f"actor {actor.name!r} was lost: {reason}"
        if was_leaving:
            self._outgoing.note(text)
            self._ending.leaving -= 1
            self._end_if_all_left()
        elif self.hosted is None and not actor.params.optional:
            self.cut(text)
        else:
            self._turn.release(actor, reason)
            if was_awaited:
                self._arrive(now)
            else:
                self._ticks.act_if_complete(now)

    def lose_environment(self, reason: str) -> None:
        """Note that the environment has gone, which ends the trial unless it had left."""
        if not self.is_over and self.environment.phase is not Phase.OVER:
            self.environment.take(Move.LOSE)
            self.cut(f"the environment was lost: {reason}")

    def _take_announcement(self, now: float) -> None:
        """Take in the LAST of an environment: its next observations are the last."""
        self.environment.take(Move.ANNOUNCE)
        if not self._ending.has_begun:
            self._outgoing.log(EntryKind.EVENT, note="the environment ended the trial")
            self._ending.await_last(now)
            self._change(TrialCause.SOFT_END)

    def _end_if_all_left(self) -> None:
        if self._ending.is_complete:
            self._mail.deliver_rewards()
            self._outgoing.end_all("")
            self._change(TrialCause.ALL_LEFT)

    def _change(self, cause: TrialCause) -> None:
        state = TRIAL[self.state].get(cause)
        if state is not None:
            self.state, self.is_over = state, state == ENDED
            self._outgoing.change(state)
            self.ended = self._outgoing.wall()

    # The time

    def deadline(self) -> float | None:
        """Return the time of the next `elapse`, None if nothing is waited for."""
        return None if self.is_over else self._clock.next

    def elapse(self, now: float) -> None:
        """Act on what was waited for until `deadline`. Does nothing before."""
        if self.is_over:
            return
        now += LATE
        due, idle = self._clock.due, self._clock.idle_at
        if due is not None and due <= now:
            if self._admission.awaited:
                self._give_up(self._admission.late(now), now)
            elif self._ending.has_begun:
                self._give_up_leaving(now)
            else:
                self._give_up(self._turn.late(now), now)
        elif idle is not None and idle <= now:
            self.cut(f"nothing happened for {self.params.max_inactivity} s (max_inactivity)")

    def _give_up(self, late: list[tuple[ActorPlace, str]], now: float) -> None:
        for actor, reason in late:
            self.lose_actor(actor.index, reason, now)
        if not self.is_over:
            self._ticks.act_if_complete(now)

    def _give_up_leaving(self, now: float) -> None:
        names = ", ".join(self._ending.late(now))
        self._mail.deliver_rewards()  # others have acknowledged the end, and get theirs
        self.cut(f"not all acknowledged the end in time: {names} did not")
