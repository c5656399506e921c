"""One trial of Cogment's protocol as a state machine; `arkml.trials.core` says how it works."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from arkml.trials.core.actors import (
    ACTOR_LEAVES,
    ENVIRONMENT_LEAVES,
    ActorPlace,
    Admission,
    Breach,
    TrialPlace,
)
from arkml.trials.core.error import TrialError
from arkml.trials.core.hosted_turn import LATE, HostedTurn
from arkml.trials.core.hosting import HostedRewards, HostedTick, Pacing
from arkml.trials.core.mail import Mail, PresentObservations
from arkml.trials.core.outputs import Changed, EntryKind, Outgoing, Output, Show, shortened
from arkml.trials.core.states import (
    ACTOR,
    ENDED,
    ENVIRONMENT,
    HOSTED_ACTOR,
    INITIALIZING,
    PENDING,
    RUNNING,
    TRIAL,
    Move,
    Phase,
    TrialCause,
)
from arkml.trials.core.turn import TrialTurn
from arkml.trials.wire.actor_pb2 import ActorInitialOutput, ActorRunTrialInput, ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import CommunicationState, TrialActor, TrialParams
from arkml.trials.wire.environment_pb2 import EnvRunTrialInput, EnvRunTrialOutput, ObservationSet
from arkml.trials.wire.players_pb2 import View

NORMAL, HEARTBEAT = CommunicationState.NORMAL, CommunicationState.HEARTBEAT
LAST, LAST_ACK, END = CommunicationState.LAST, CommunicationState.LAST_ACK, CommunicationState.END


class Trial:
    """
    State machine of one trial; the theory of operation is at the top of this module.

    Args:
        trial_id: Id of the trial, unique in its server.
        user_id: Id of the user who starts it.
        is_logged: Whether log entries are among the outputs. They also are if the parameters name a
            datalog.
        wall: Clock for timestamps, in nanoseconds since 1970.

    Attributes:
        state: A TrialState; `is_over` is true once it is ENDED.
        reason: Why the trial was cut off, or ended by its server; empty otherwise.
        began: Time of the start, in nanoseconds since 1970.
        ended: Time of the last change of `state`, in nanoseconds since 1970.
        hosted: The ticks of a hosted trial, None in other trials. `begin` with a Pacing sets it.

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
        self.environment = TrialPlace("", ENVIRONMENT)
        self.hosted: HostedTurn | None = None
        self._outgoing = Outgoing(wall, is_logged=is_logged)
        self._is_observing = False  # it is the environment's turn, not the actors'
        self._is_end_requested = False  # the next complete set of actions is the last
        self._is_ending = False  # no more actions are awaited
        self._is_last_due = False  # the next observations are the final ones
        self._leaving = 0  # actors that have not acknowledged the final observations
        self._actors_due = self._environment_due = 0.0  # deadlines of acknowledgements
        self._idle_at: float | None = None  # when nothing has happened for too long
        self._set_up(None, now=0.0)

    def _set_up(self, pacing: Pacing | None, now: float) -> None:
        """Build the parts of the trial for the actors that it has now."""
        actors, outgoing, params = self.actors, self._outgoing, self.params
        self._admission = Admission(self.id, actors, self.environment, outgoing, now)
        self._observations = PresentObservations(actors, outgoing)
        self._mail = Mail(actors, self.environment, params.nb_buffered_ticks, outgoing)
        self._turn: TrialTurn | HostedTurn
        if pacing is None:
            self._turn = TrialTurn(actors, self._observations, outgoing)
        else:
            self._turn = self.hosted = HostedTurn(
                actors, self._observations, outgoing, pacing, self.user_id, params.max_steps
            )

    @property
    def tick(self) -> int:
        """Number of the latest observations, 0 before the first."""
        return self._outgoing.tick

    @property
    def latest(self) -> ObservationSet | None:
        """A copy of the latest observations, with their tick and time; None before the first."""
        return self._observations.latest()

    @property
    def duration(self) -> int:
        """Nanoseconds from the start of the trial until now, or until its end."""
        until = self.ended if self.is_over else self._outgoing.wall()
        return max(0, until - self.began)  # clocks may be set back

    def take(self) -> list[Output]:
        """Return the outputs since the last call, in the order in which to apply them."""
        outgoing = self._outgoing
        outputs, outgoing.outputs = outgoing.outputs, []
        return outputs

    def trial_actors(self) -> list[TrialActor]:
        """Return the name and class of each actor, in trial order."""
        return self._admission.actors()

    # From the parameters to the first tick

    def begin(self, params: TrialParams, now: float, pacing: Pacing | None = None) -> None:
        """
        Start the trial with its final, checked parameters, and wait for the actors.

        Args:
            params: Parameters that `checked` has returned.
            now: The time, in seconds.
            pacing: Tick rate of a hosted trial, None for other trials.

        """
        self.params = params
        self._outgoing.is_logged |= bool(params.datalog.endpoint)
        self.environment = TrialPlace(params.environment.name, ENVIRONMENT)
        table = ACTOR if pacing is None else HOSTED_ACTOR
        self.actors = [ActorPlace(index, actor, table) for index, actor in enumerate(params.actors)]
        self._set_up(pacing, now)
        self._change(TrialCause.PARAMETERS)
        self._admission.call_actors()
        if not self._admission.awaited:
            self._call_environment(now)

    def slot(self, selection: ActorInitialOutput) -> int:
        """
        Return the index of a free actor that a client asks to be, by name or by class.

        Raises TrialError if there is none, or the trial is not PENDING.
        """
        return self._admission.slot(selection, self.state)

    def join(self, index: int, now: float) -> None:
        """
        Admit a client as the actor with an index that `slot` has returned.

        `now` is the present time in seconds.
        """
        self._admission.admit(index)
        self._arrive(now)

    def _arrive(self, now: float) -> None:
        """Count one awaited actor as arrived or lost; after the last one call the environment."""
        if not self._admission.settle() or self.is_over:
            return
        if self.hosted is None and not any(actor.is_present for actor in self.actors):
            text = "no actor takes part: the environment plays without any"
            self._outgoing.note(text, is_warning=True)
        self._call_environment(now)

    def _call_environment(self, now: float) -> None:
        self._admission.call_environment(self.params.environment)
        self._is_observing = True
        if self.params.max_inactivity:  # from here on: a trial can wait for people (decision 18)
            self._idle_at = now + self.params.max_inactivity

    # Hosted trials

    def slot_to_take_over(self, selection: ActorInitialOutput) -> int:
        """
        Return the index of the actor that a person asks to take over.

        The actor has no player, or one that is away. Raises TrialError if it cannot be taken over.
        """
        if self.hosted is None:
            raise TrialError(f"trial {self.id} is not hosted: its actors cannot be taken over")
        return self._admission.slot_to_take_over(selection, self.state, self.hosted.is_away)

    def take_over(self, index: int, user_id: str, now: float) -> None:
        """
        Make a person the player of an actor that its stand-in plays.

        Args:
            index: Index of the actor, which `slot_to_take_over` returned.
            user_id: Name of the person.
            now: The time, in seconds.

        """
        assert self.hosted is not None
        self._note_activity(now)
        self._admission.admit(index, Move.TAKE_OVER)
        self.hosted.take_over(self.actors[index], user_id, now)

    def take_tick(self, tick: HostedTick, now: float, *, is_ahead: bool = False) -> None:
        """
        Handle a tick of a hosted environment.

        Args:
            tick: Its rewards, observations and stand-in actions.
            now: The time, in seconds.
            is_ahead: Whether the environment has played the tick by the stand-in actions alone.

        """
        if self.is_over:
            return
        hosted = self.hosted
        assert hosted is not None
        self._note_activity(now)
        hosted.offered, hosted.ended = tick.stand_ins, tick.ended
        try:
            self._observe(tick.observations, tick.rewards)
            if is_ahead:
                self._is_observing = True
                hosted.pass_over()
            else:
                self._begin_tick(now)
        except Breach as breach:
            self.cut(f"the environment broke the protocol: {breach}")

    def view(self) -> View:
        """Return the present tick of a hosted trial, for spectators."""
        assert self.hosted is not None
        return self.hosted.view(self._mail.delivered(), self.state, self.reason)

    # Messages to the trial

    def from_actor(self, index: int, message: ActorRunTrialOutput, now: float) -> None:
        """
        Handle a message of an actor.

        Args:
            index: Index of the actor.
            message: The message.
            now: The present time in seconds.

        """
        if self.is_over:
            return
        self._note_activity(now)
        try:
            self._hear_actor(self.actors[index], message, now)
        except Breach as breach:
            self.lose_actor(index, f"it broke the protocol: {breach}", now)

    def from_environment(self, message: EnvRunTrialOutput, now: float) -> None:
        """Handle a message of the environment; `now` is the present time in seconds."""
        if self.is_over:
            return
        self._note_activity(now)
        try:
            self._hear_environment(message, now)
        except Breach as breach:
            self.cut(f"the environment broke the protocol: {breach}")

    def _hear_actor(self, actor: ActorPlace, message: ActorRunTrialOutput, now: float) -> None:
        state, kind = message.state, message.WhichOneof("data")
        if state == NORMAL and kind == "action":
            actor.take(Move.PLAY)
            self._turn.take(actor, message.action, now)
            self._act_if_complete(now)
        elif state == NORMAL and kind in ("reward", "message"):
            actor.take(Move.TALK)
            self._mail.take(actor.name, message)
        elif state == NORMAL and kind == "init_output":
            actor.take(Move.ACCEPT)
            self._arrive(now)
        elif state == HEARTBEAT:
            self._outgoing.to_actor(actor.index, ActorRunTrialInput(state=HEARTBEAT))
        elif state == LAST_ACK:
            actor.take(Move.ACKNOWLEDGE)
            self._leaving -= 1
            self._end_if_all_left()
        elif state == END:
            self.lose_actor(actor.index, shortened(message.details) or "it left", now)
        else:
            raise Breach.of(state, kind)

    def _hear_environment(self, message: EnvRunTrialOutput, now: float) -> None:
        state, kind = message.state, message.WhichOneof("data")
        place = self.environment
        if state == NORMAL and kind == "observation_set":
            self._observe(message.observation_set)
            self._begin_tick(now)
        elif state == NORMAL and kind in ("reward", "message"):
            place.take(Move.TALK)
            self._mail.take(place.name, message)
        elif state == NORMAL and kind == "init_output":
            place.take(Move.ACCEPT)
        elif state == HEARTBEAT:
            self._outgoing.to_environment(EnvRunTrialInput(state=HEARTBEAT))
        elif state == LAST:
            place.take(Move.ANNOUNCE)
            if not self._is_ending:  # else it crosses the LAST of the trial
                self._outgoing.log(EntryKind.EVENT, note="the environment ended the trial")
                self._await_last(now)
                self._change(TrialCause.SOFT_END)
        elif state == LAST_ACK:
            if self._is_last_due:
                raise Breach("it sent LAST_ACK before its last observations")
            place.take(Move.ACKNOWLEDGE)
            self._mail.deliver_rewards()  # an actor may wait for them before its LAST_ACK
            self._end_if_all_left()
        elif state == END:
            self.lose_environment(shortened(message.details) or "it left")
        else:
            raise Breach.of(state, kind)

    # Ticks

    def _observe(self, observed: ObservationSet, rewards: Sequence[HostedRewards] = ()) -> None:
        """Handle the rewards of a tick and the observations of the next. Raises Breach."""
        outgoing, observations = self._outgoing, self._observations
        if not (self._is_observing or self._is_last_due):
            tick = outgoing.tick
            raise Breach(f"it sent observations again in tick {tick}, before the actions")
        observations.check(observed)
        if self.hosted is not None and not self._is_last_due:
            self.hosted.check()
        self.environment.take(Move.OBSERVE)
        for one in rewards:
            self._mail.take_hosted(one)
        self._mail.deliver_rewards()
        self._is_observing = False
        observations.take(observed)
        if not outgoing.tick:
            self._change(TrialCause.FIRST_OBSERVATION)
        if outgoing.is_logged:
            outgoing.log(EntryKind.OBSERVATIONS, content=observations.serialized())

    def _begin_tick(self, now: float) -> None:
        """Send the actors their observations, which may be the final ones."""
        if self.hosted is not None and self.hosted.is_shown:
            self._outgoing.outputs.append(Show(self.view()))
        if self._is_last_due:
            self._turn.finish()
            self._is_last_due = False
            self._leaving = self._observations.give_last()
            self._actors_due = now + ACTOR_LEAVES
            return
        self._turn.begin(now)
        steps = self.params.max_steps
        if 0 < steps <= self._outgoing.tick and not self._is_end_requested:
            self._outgoing.log(EntryKind.EVENT, note=f"{steps} steps were made (max_steps)")
            self._is_end_requested = True
        if self._is_end_requested:
            self._change(TrialCause.SOFT_END)
        self._act_if_complete(now)

    def _act_if_complete(self, now: float) -> None:
        """Send the environment all actions of the tick if none is missing."""
        if self._is_observing or self._is_ending or not self._turn.is_complete:
            return
        self._is_observing = True
        if self._is_end_requested:
            self.environment.take(Move.LAST)
            self._outgoing.to_environment(EnvRunTrialInput(state=LAST))
            self._await_last(now)
        self._turn.leave(now)

    # The end

    def terminate(self, now: float, reason: str = "") -> None:
        """
        Request a soft end: the next complete set of actions is the last one.

        A trial that does not run yet first waits for its actors, and then plays one tick.

        Args:
            now: The present time in seconds.
            reason: Why the trial ends, or empty.

        """
        self.reason = self.reason or reason
        if self.state in (INITIALIZING, PENDING, RUNNING):
            self._note_activity(now)
            if not self._is_end_requested:
                self._outgoing.log(EntryKind.EVENT, note="the end was requested")
            self._is_end_requested = True
            self._change(TrialCause.SOFT_END)
            self._act_if_complete(now)

    def cut(self, reason: str) -> None:
        """End the trial at once: all get END with the reason, and no last observation."""
        if not self.is_over:
            self.reason = reason
            self._outgoing.note(reason)
            self._outgoing.end_all(reason)
            self._change(TrialCause.HARD_END)

    def lose_actor(self, index: int, reason: str, now: float) -> None:
        """
        Handle the loss of an actor. A required one ends the trial, unless it is hosted.

        Args:
            index: Index of the actor.
            reason: Why it was lost, as the end of a sentence.
            now: The time, in seconds.

        """
        actor = self.actors[index]
        if self.is_over or not (actor.is_present or actor.is_awaited):
            return
        was_awaited, was_leaving = actor.is_awaited, actor.phase is Phase.LEAVING
        actor.take(Move.LOSE)
        self._outgoing.end_actor(index, reason)
        text = f"actor {actor.name!r} was lost: {reason}"
        if was_leaving:
            self._outgoing.note(text)
            self._leaving -= 1
            self._end_if_all_left()
        elif self.hosted is None and not actor.params.optional:
            self.cut(text)
        else:
            self._turn.release(actor, reason)
            if was_awaited:
                self._arrive(now)
            else:
                self._act_if_complete(now)

    def lose_environment(self, reason: str) -> None:
        """Handle the loss of the environment, which ends the trial unless it sent LAST_ACK."""
        if not self.is_over and self.environment.phase is not Phase.OVER:
            self.environment.take(Move.LOSE)
            self.cut(f"the environment was lost: {reason}")

    def _await_last(self, now: float) -> None:
        """Wait for the final observations."""
        self._is_ending = self._is_last_due = True
        self._environment_due = now + ENVIRONMENT_LEAVES

    def _end_if_all_left(self) -> None:
        is_awaited = self._leaving or self._is_last_due
        if not is_awaited and self.environment.phase is Phase.OVER:
            self._mail.deliver_rewards()
            self._outgoing.end_all("")
            self._change(TrialCause.ALL_LEFT)

    def _change(self, cause: TrialCause) -> None:
        state = TRIAL[self.state].get(cause)
        if state is not None:
            self.state, self.is_over = state, state == ENDED
            self._outgoing.outputs.append(Changed(state))
            self.ended = self._outgoing.wall()

    # The time

    def deadline(self) -> float | None:
        """Return the time at which to call `elapse`, in seconds; None if there is no deadline."""
        if self.is_over:
            return None
        due, idle = self._due(), self._idle_at
        return idle if due is None or (idle is not None and idle < due) else due

    def elapse(self, now: float) -> None:
        """Handle all deadlines up to `now`, such as a late action; before the first, do nothing."""
        if self.is_over:
            return
        now += LATE
        due, idle = self._due(), self._idle_at
        if due is not None and due <= now:
            self._give_up(now)
        elif idle is not None and idle <= now:
            self.cut(f"nothing happened for {self.params.max_inactivity} s (max_inactivity)")

    def _due(self) -> float | None:
        """Return the time at which an actor or the environment is late, None if neither can be."""
        if self._admission.awaited:
            return self._admission.due
        if not self._is_ending:
            return self._turn.due
        times = [self._actors_due] if self._leaving else []
        if self.environment.is_present:
            times.append(self._environment_due)
        return min(times, default=None)

    def _note_activity(self, now: float) -> None:
        if self._idle_at is not None:
            self._idle_at = now + self.params.max_inactivity

    def _give_up(self, now: float) -> None:
        """Continue without those who are late, or end the trial."""
        if self._is_ending:
            names = []
            if self._leaving and self._actors_due <= now:
                names = [actor.name for actor in self.actors if actor.phase is Phase.LEAVING]
            if self.environment.is_present and self._environment_due <= now:
                names.append(self.environment.name)
            self._mail.deliver_rewards()  # for the actors that did acknowledge the end
            self.cut(f"not all acknowledged the end in time: {', '.join(names)} did not")
            return
        late = self._admission.late(now) if self._admission.awaited else self._turn.late(now)
        for actor, reason in late:
            self.lose_actor(actor.index, reason, now)
        if not self.is_over:
            self._act_if_complete(now)
