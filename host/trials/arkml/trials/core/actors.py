"""The participants of a trial, their phases, and the arrival of actors before its first tick."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

from arkml.trials.core.error import ActorTaken, TrialError
from arkml.trials.core.hosting import is_left_to_stand_in
from arkml.trials.core.outputs import Outgoing
from arkml.trials.core.parameters import CLIENT, TrialEndpoint
from arkml.trials.core.states import ACTOR, HOSTED_ACTOR, PENDING, RUNNING, Move, Phase
from arkml.trials.wire.actor_pb2 import ActorInitialInput, ActorInitialOutput, ActorRunTrialInput
from arkml.trials.wire.common_pb2 import (
    ActorParams,
    CommunicationState,
    EnvironmentParams,
    TrialActor,
    TrialState,
)
from arkml.trials.wire.environment_pb2 import EnvInitialInput, EnvRunTrialInput

ENVIRONMENT_LEAVES: Final = 60.0
"""Seconds that an environment has for its last observations and its LAST_ACK."""

ACTOR_LEAVES: Final = 30.0
"""Seconds that actors have for their LAST_ACK."""


class Breach(Exception):
    """An error for a message that the protocol does not allow at this time."""

    @classmethod
    def of(cls, state: CommunicationState, kind: str | None) -> Self:
        """
        Return the error for a message whose state and kind of data do not fit together.

        `kind` is the name of the message's data, None for a message without data.
        """
        if state not in CommunicationState.values():
            return cls(f"it sent the unknown state {state}")
        return cls(f"it sent {CommunicationState.Name(state)} with {kind or 'no data'}")


class TrialPlace:
    """
    A participant of a trial, which is the environment or an actor, and its present phase.

    `table` gives, for each phase and move, the next phase.
    """

    __slots__ = ("_table", "name", "phase")

    def __init__(self, name: str, table: Mapping[Phase, Mapping[Move, Phase]]) -> None:
        self.name = name
        self.phase = Phase.ABSENT
        self._table = table

    def take(self, step: Move) -> None:
        """
        Make a move, which changes the phase. Raises Breach if the present phase does not allow it.
        """
        phase = self._table[self.phase].get(step)
        if phase is None:
            raise Breach(f"{step.value} while it is {self.phase.value}")
        self.phase = phase

    @property
    def is_present(self) -> bool:
        """True from the participant's first message to its last."""
        return self.phase not in (Phase.ABSENT, Phase.STANDBY, Phase.OVER)


class ActorPlace(TrialPlace):
    """
    An actor of a trial, and its action in the present tick.

    Args:
        index: Index of the actor in the trial.
        params: Parameters of the actor.
        table: The next phase of an actor, for each phase and move.

    Attributes:
        joins: Whether the actor joins by itself; the trial calls other actors.
        action: The action in the present tick, None until it is known.
        is_missing: Whether the trial waits for the action.

    """

    __slots__ = ("action", "index", "is_missing", "joins", "params")

    def __init__(
        self, index: int, params: ActorParams, table: Mapping[Phase, Mapping[Move, Phase]] = ACTOR
    ) -> None:
        super().__init__(params.name, table)
        self.index = index
        self.params = params
        self.joins = TrialEndpoint.parse(params.endpoint).scheme == CLIENT
        self.action: bytes | None = None
        self.is_missing = False
        if table is HOSTED_ACTOR and is_left_to_stand_in(params):
            self.take(Move.STAND_BY)

    @property
    def is_awaited(self) -> bool:
        """True until the actor takes part in the trial, or the trial stops waiting for it."""
        return self.phase in (Phase.ABSENT, Phase.CALLED)


def late_by(
    deadlines: Sequence[tuple[ActorPlace, float]], now: float
) -> tuple[list[ActorPlace], float | None]:
    """
    Return the actors whose deadline has passed, and the earliest of the other deadlines.

    Args:
        deadlines: Each awaited actor with its deadline in seconds.
        now: The present time in seconds, of the same clock.

    """
    late = [actor for actor, due in deadlines if due <= now]
    return late, min((due for _, due in deadlines if due > now), default=None)


class Admission:
    """
    The arrival of a trial's actors, for which the trial waits before it calls its environment.

    Args:
        trial_id: Id of the trial.
        actors: The actors of the trial.
        environment: The environment of the trial.
        outgoing: Collects the outputs of the trial.
        now: The present time in seconds.

    Attributes:
        awaited: Number of actors that may still arrive.
        due: Time at which the next of them is late, in seconds; None if none has a timeout.

    """

    def __init__(
        self,
        trial_id: str,
        actors: Sequence[ActorPlace],
        environment: TrialPlace,
        outgoing: Outgoing,
        now: float,
    ) -> None:
        self._trial_id = trial_id
        self._actors = actors
        self._environment = environment
        self._outgoing = outgoing
        awaited = [actor for actor in actors if actor.is_awaited]
        timeouts = [(actor, actor.params.initial_connection_timeout) for actor in awaited]
        self._deadlines = [(actor, now + seconds) for actor, seconds in timeouts if seconds > 0]
        self.awaited = len(awaited)
        self.due = min((due for _, due in self._deadlines), default=None)

    def call_actors(self) -> None:
        """
        Open a stream to each actor that does not join by itself, and send it its first message.
        """
        for actor in self._actors:
            if actor.is_awaited and not actor.joins:
                actor.take(Move.CALL)
                self._outgoing.call_actor(actor.index)
                self._introduce(actor)

    def slot(self, selection: ActorInitialOutput, state: TrialState) -> int:
        """
        Return the index of a free actor that a client asks to be, by name or by class.

        Raises TrialError if there is none, or the trial is not PENDING.
        """
        if state != PENDING:
            name = TrialState.Name(state)
            raise TrialError(f"trial {self._trial_id} is {name}: actors join while it is PENDING")
        what, named = self._selected(selection)
        for actor in named:
            if actor.joins and actor.phase is Phase.ABSENT:
                return actor.index
        raise TrialError(
            f"trial {self._trial_id} has no free slot for an {what}: it is taken, or called"
        )

    def slot_to_take_over(
        self, selection: ActorInitialOutput, state: TrialState, is_away: Callable[[int], bool]
    ) -> int:
        """
        Return the index of the actor that a person asks to play, by name or by class.

        Actors without a player come first, then actors for which `is_away` is true.

        Args:
            selection: Name or class of the actor.
            state: State of the trial.
            is_away: Tells, for the index of an actor, whether its player is away.

        Raises:
            ActorTaken: All of these actors have a player.
            TrialError: The name is unknown, or the trial is neither PENDING nor RUNNING.

        """
        if state not in (PENDING, RUNNING):
            name = TrialState.Name(state)
            raise TrialError(f"trial {self._trial_id} is {name}: people play while it is RUNNING")
        what, named = self._selected(selection)
        standing_by = [actor for actor in named if actor.phase is Phase.STANDBY]
        away = [actor for actor in named if is_away(actor.index)]
        for actor in standing_by + away:
            return actor.index
        raise ActorTaken(
            f"trial {self._trial_id} has no {what} to take over: it has a player, or awaits one"
        )

    def admit(self, index: int, move: Move = Move.JOIN) -> None:
        """
        Admit a client as the actor whose index `slot` has returned, and send the first message.

        `move` is the change of the actor's phase.
        """
        actor = self._actors[index]
        actor.take(move)
        self._outgoing.open_actors.add(index)
        self._introduce(actor)

    def settle(self) -> bool:
        """Count one awaited actor less; return True if no actor is awaited any more."""
        self.awaited -= 1
        if not self.awaited:
            self.due = None
        return not self.awaited

    def call_environment(self, params: EnvironmentParams) -> None:
        """Call the environment and send it the list of actors."""
        self._environment.take(Move.CALL)
        self._outgoing.call_environment()
        init = EnvInitialInput(
            name=params.name,
            impl_name=params.implementation,
            actors_in_trial=self.actors(),
            config=params.config if params.HasField("config") else None,
        )
        message = EnvRunTrialInput(state=CommunicationState.NORMAL, init_input=init)
        self._outgoing.to_environment(message)

    def actors(self) -> list[TrialActor]:
        """Return the name and class of each actor, in trial order."""
        return [
            TrialActor(name=actor.name, actor_class=actor.params.actor_class)
            for actor in self._actors
        ]

    def late(self, now: float) -> list[tuple[ActorPlace, str]]:
        """
        Return each actor that has not arrived by its deadline, with a reason, and update `due`.

        `now` is the present time in seconds.
        """
        awaited = [(actor, due) for actor, due in self._deadlines if actor.is_awaited]
        late, self.due = late_by(awaited, now)
        return [
            (actor, f"it did not join within {actor.params.initial_connection_timeout:g} s")
            for actor in late
        ]

    def _selected(self, selection: ActorInitialOutput) -> tuple[str, list[ActorPlace]]:
        """Return the actors that a selection means, at least one, and a description of it."""
        kind = selection.WhichOneof("slot_selection")
        wanted = getattr(selection, kind) if kind else ""
        if not wanted:
            raise TrialError("an actor joins by the name of its slot or by its class")
        is_name = kind == "actor_name"
        named = [
            actor
            for actor in self._actors
            if wanted == (actor.name if is_name else actor.params.actor_class)
        ]
        what = f"actor {wanted!r}" if is_name else f"actor of class {wanted!r}"
        if not named:
            raise TrialError(f"trial {self._trial_id} has no {what}")
        return what, named

    def _introduce(self, actor: ActorPlace) -> None:
        params = actor.params
        init = ActorInitialInput(
            actor_name=params.name,
            actor_class=params.actor_class,
            impl_name=params.implementation,
            env_name=self._environment.name,
            config=params.config if params.HasField("config") else None,
        )
        message = ActorRunTrialInput(state=CommunicationState.NORMAL, init_input=init)
        self._outgoing.to_actor(actor.index, message)
