"""The participants of a trial, their phases, and how actors come into it before its first tick."""

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
    """A message that the protocol does not allow now."""

    @classmethod
    def of(cls, state: CommunicationState, kind: str | None) -> Self:
        """Return the error for a state and data that do not fit together."""
        if state not in CommunicationState.values():
            return cls(f"it sent the unknown state {state}")
        return cls(f"it sent {CommunicationState.Name(state)} with {kind or 'no data'}")


class TrialPlace:
    """A participant of a trial, the environment or an actor, whose phase follows a table."""

    __slots__ = ("_table", "name", "phase")

    def __init__(self, name: str, table: Mapping[Phase, Mapping[Move, Phase]]) -> None:
        self.name = name
        self.phase = Phase.ABSENT
        self._table = table

    def take(self, step: Move) -> None:
        """Move to the phase that `step` leads to. Raises Breach if none follows it from here."""
        phase = self._table[self.phase].get(step)
        if phase is None:
            raise Breach(f"{step.value} while it is {self.phase.value}")
        self.phase = phase

    @property
    def is_present(self) -> bool:
        """True from its first message to its last."""
        return self.phase not in (Phase.ABSENT, Phase.STANDBY, Phase.OVER)


class ActorPlace(TrialPlace):
    """
    An actor of a trial.

    Attributes:
        joins: Whether it joins by itself.
        action: Its action in the present tick, None until it is known.
        is_missing: Whether the trial waits for its action.

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
        """True until it takes part, or is given up."""
        return self.phase in (Phase.ABSENT, Phase.CALLED)


def late_by(
    deadlines: Sequence[tuple[ActorPlace, float]], now: float
) -> tuple[list[ActorPlace], float | None]:
    """Return the actors whose deadline has passed, and the next of the other deadlines."""
    late = [actor for actor, due in deadlines if due <= now]
    return late, min((due for _, due in deadlines if due > now), default=None)


class Admission:
    """
    The actors that a trial awaits before it calls its environment.

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
        """Call each actor that does not join by itself."""
        for actor in self._actors:
            if actor.is_awaited and not actor.joins:
                actor.take(Move.CALL)
                self._outgoing.call_actor(actor.index)
                self._introduce(actor)

    def slot(self, selection: ActorInitialOutput, state: TrialState) -> int:
        """
        Return the index of the free slot that an actor asks for, by name or by class.

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
        Return the index of the actor that a person asks for, by name or by class.

        Actors without a player come first, then actors for which `is_away` is true. Raises
        ActorTaken if all have a player, and TrialError for an unknown name, or in another state
        than PENDING and RUNNING.
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
        """Admit an actor that joined by itself to the slot that was returned for it."""
        actor = self._actors[index]
        actor.take(move)
        self._outgoing.open_actors.add(index)
        self._introduce(actor)

    def settle(self) -> bool:
        """Count one awaited actor less; return True after the last one."""
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
        """Return each actor that is late by now, with a reason, and set `due` for the next."""
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
