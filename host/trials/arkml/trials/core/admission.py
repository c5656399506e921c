"""The start of a trial: actors that join by themselves, and actors that the trial calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from arkml.trials.core.error import ActorTaken, TrialError
from arkml.trials.core.outgoing import Outgoing
from arkml.trials.core.places import ActorPlace, EnvironmentPlace
from arkml.trials.core.states import Move, Phase
from arkml.trials.wire.actor_pb2 import ActorInitialInput, ActorInitialOutput, ActorRunTrialInput
from arkml.trials.wire.common_pb2 import CommunicationState, EnvironmentParams, TrialActor
from arkml.trials.wire.environment_pb2 import EnvInitialInput, EnvRunTrialInput


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
        environment: EnvironmentPlace,
        outgoing: Outgoing,
        now: float,
    ) -> None:
        self._trial_id = trial_id
        self._actors = actors
        self._environment = environment
        self._outgoing = outgoing
        self._began = now
        self.awaited = sum(actor.is_awaited for actor in actors)
        self.due: float | None = None
        self._set_due()

    def call_actors(self) -> None:
        """Call each actor that does not join by itself."""
        for actor in self._actors:
            if actor.is_awaited and not actor.joins:
                actor.take(Move.CALL)
                self._outgoing.call_actor(actor.index)
                self._introduce(actor)

    def slot(self, selection: ActorInitialOutput) -> int:
        """
        Return the index of the free slot that an actor asks for, by name or by class.

        Raises TrialError if there is none.
        """
        what, named = self._selected(selection)
        for actor in named:
            if actor.joins and actor.phase is Phase.ABSENT:
                return actor.index
        raise TrialError(
            f"trial {self._trial_id} has no free slot for an {what}: it is taken, or called"
        )

    def slot_to_take_over(
        self, selection: ActorInitialOutput, is_away: Callable[[int], bool]
    ) -> int:
        """
        Return the index of the actor that a person asks for, by name or by class.

        Actors without a player come first, then actors for which `is_away` is true. Raises
        ActorTaken if all have a player, and TrialError for an unknown name.
        """
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
        self._outgoing.admit_actor(index)
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
        late = [
            (actor, f"it did not join within {actor.params.initial_connection_timeout:g} s")
            for actor, due in self._timed()
            if due <= now
        ]
        self._set_due(after=now)
        return late

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

    def _set_due(self, after: float = 0.0) -> None:
        self.due = min((due for _, due in self._timed() if due > after), default=None)

    def _timed(self) -> list[tuple[ActorPlace, float]]:
        """Return the awaited actors that have a timeout, each with its deadline."""
        timed = [
            (actor, actor.params.initial_connection_timeout)
            for actor in self._actors
            if actor.is_awaited
        ]
        return [(actor, self._began + seconds) for actor, seconds in timed if seconds > 0]

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
