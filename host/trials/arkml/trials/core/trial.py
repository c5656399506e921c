"""
One trial of Cogment's protocol as a state machine without I/O (decision 18).

Theory of operation
===================

A Trial sends nothing and waits for nothing. Its owner, `server/trial_task.py`, feeds it inputs:
`from_actor` and `from_environment` for messages, `lose_actor` and `lose_environment` for streams
that ended, `elapse` for the time. After each input the owner calls `take`, which returns the
outputs since the last call, for example "send this message to actor 2" or "open a stream to the
environment", and applies them in order. `deadline` says when to call `elapse` next. Inputs get
the time as `now`, in seconds of one steady clock; the machine itself reads a clock only for
timestamps.

The state follows the table TRIAL of `core/states.py`. A trial is INITIALIZING while hooks write
its parameters. `begin` takes them and makes it PENDING: actors with an address are called, actors
of the endpoint `cogment://client` join by themselves, and once all of them have arrived or are
given up, the environment is called. Its first observations make the trial RUNNING.

A tick is one round. The environment sends one observation for each actor. The trial first sends
the rewards of the tick before, and then the observations; messages pass through at any time.
Each actor sends one action. When the last one is there, the environment gets all actions in one
message, and answers with the observations of the next tick. In place of a missing optional actor
the trial uses its `default_action`, or lists it as unavailable. A hosted trial has other rules
(`core/hosted_turn.py`): its environment offers a stand-in action for each actor, so the tick can
end without any of them (decision 19).

A soft end is requested by `terminate` or by `max_steps`. A running trial becomes TERMINATING; one
that does not run yet first plays its tick 0. With the next complete set of actions the environment
gets LAST, and the observations that it answers with are the final ones. An environment can also
send LAST itself; then its next observations are final. Actors get LAST, then the final
observation, and acknowledge with LAST_ACK, as does the environment. After the last
acknowledgement the trial sends the remaining rewards and END, and is ENDED. Actors have 30 s and
the environment 60 s to do so; a late one turns this into a hard end: `cut` sends END with a reason
to all at once, without final observations.

Actors and the environment each have a Phase. A message that their table does not allow is a
breach of the protocol. It never raises from an input. A breach, a timeout or a lost stream of the
environment or of a required actor cuts the trial, and an optional actor is dropped; in a hosted
trial the stand-in of any lost actor takes over instead.
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
        is_shown: Whether a hosted trial outputs a view of each tick.
        hosted: The inputs of a hosted trial, None in other trials. `begin` with a Pacing sets it.

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
        """Number of the latest observations, 0 before the first."""
        return self._outgoing.tick

    @property
    def latest(self) -> ObservationSet | None:
        """A copy of the latest observations, with their tick and time; None before the first."""
        return self._observations.latest()

    @property
    def is_hosted(self) -> bool:
        """True if the environment offers a stand-in action for each actor."""
        return self.hosted is not None

    @property
    def duration(self) -> int:
        """Nanoseconds from the start of the trial until now, or until its end."""
        until = self.ended if self.is_over else self._outgoing.wall()
        return max(0, until - self.began)  # clocks may be set back

    def take(self) -> list[Output]:
        """Return the outputs since the last call, in the order in which to apply them."""
        return self._outgoing.take()

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
        """Build the parts of the trial for the actors that it has now."""
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

        Raises TrialError if there is none, or the trial is not PENDING.
        """
        if self.state != PENDING:
            name = TrialState.Name(self.state)
            raise TrialError(f"trial {self.id} is {name}: actors join while it is PENDING")
        return self._admission.slot(selection)

    def join(self, index: int, now: float) -> None:
        """Admit an actor that joins by itself to the slot that `slot` returned."""
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
        self._ticks.start()
        self._clock.start(now)

    # Hosted trials

    def slot_to_take_over(self, selection: ActorInitialOutput) -> int:
        """
        Return the index of the actor that a person asks to take over.

        The actor has no player, or one that is away. Raises TrialError if it cannot be taken over.
        """
        if self.hosted is None:
            raise TrialError(f"trial {self.id} is not hosted: its actors cannot be taken over")
        if self.state not in (PENDING, RUNNING):
            name = TrialState.Name(self.state)
            raise TrialError(f"trial {self.id} is {name}: people play while it is RUNNING")
        return self._admission.slot_to_take_over(selection, self.hosted.turn.is_away)

    def view(self) -> View:
        """Return the present tick of a hosted trial, for spectators."""
        assert self.hosted is not None
        return self.hosted.turn.view(self._mail.delivered(), self.state, self.reason)

    # Messages to the trial

    def from_actor(self, index: int, message: ActorRunTrialOutput, now: float) -> None:
        """Handle a message of an actor."""
        if self.is_over:
            return
        self._clock.note_activity(now)
        try:
            self._hear_actor(self.actors[index], message, now)
        except Breach as breach:
            self.lose_actor(index, f"it broke the protocol: {breach}", now)

    def from_environment(self, message: EnvRunTrialOutput, now: float) -> None:
        """Handle a message of the environment."""
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
            self._mail.deliver_rewards()  # an actor may wait for them before its LAST_ACK
            self._end_if_all_left()
        elif state == END:
            self.lose_environment(shortened(message.details) or "it left")
        else:
            raise Breach.of(state, kind)

    # The end

    def terminate(self, now: float, reason: str = "") -> None:
        """
        Request a soft end: the next complete set of actions is the last one.

        A trial that does not run yet first waits for its actors, and then plays one tick.
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
        """Handle the loss of the environment, which ends the trial unless it sent LAST_ACK."""
        if not self.is_over and self.environment.phase is not Phase.OVER:
            self.environment.take(Move.LOSE)
            self.cut(f"the environment was lost: {reason}")

    def _take_announcement(self, now: float) -> None:
        """Handle LAST from the environment: its next observations are the final ones."""
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
        """Return the time at which to call `elapse`, in seconds; None if there is no deadline."""
        return None if self.is_over else self._clock.next

    def elapse(self, now: float) -> None:
        """Handle all deadlines up to `now`, such as a late action; before the first, do nothing."""
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
        self._mail.deliver_rewards()  # for the actors that did acknowledge the end
        self.cut(f"not all acknowledged the end in time: {names} did not")
