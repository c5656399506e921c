"""The observations of the present tick of a trial, for its actors and its log."""

from __future__ import annotations

from collections.abc import Sequence

from arkml.trials.core.actors import ActorPlace, Breach
from arkml.trials.core.mail import AUTO
from arkml.trials.core.outputs import Outgoing
from arkml.trials.core.states import Move
from arkml.trials.wire.actor_pb2 import ActorRunTrialInput
from arkml.trials.wire.common_pb2 import CommunicationState
from arkml.trials.wire.environment_pb2 import ObservationSet

NORMAL = CommunicationState.NORMAL


class PresentObservations:
    """The latest observations of the environment, which are never modified."""

    def __init__(self, actors: Sequence[ActorPlace], outgoing: Outgoing) -> None:
        self._actors = actors
        self._outgoing = outgoing
        self._observed = ObservationSet()
        self._timestamp = 0
        self._messages: dict[int, ActorRunTrialInput] = {}
        self._next = 0  # tick of the next observations
        self.has_begun = False

    def check(self, observed: ObservationSet) -> None:
        """Raise Breach unless these are of the next tick, with an observation for each actor."""
        indices, count = observed.actors_map, len(observed.observations)
        if len(indices) != len(self._actors):
            raise Breach(f"it sent observations for {len(indices)} of {len(self._actors)} actors")
        if indices and not (min(indices) >= 0 and max(indices) < count):
            raise Breach(f"its actors_map names an observation that is not one of its {count}")
        if observed.tick_id not in (AUTO, self._next):
            tick = observed.tick_id
            raise Breach(f"it sent observations of tick {tick} instead of {self._next}")

    def take(self, observed: ObservationSet) -> None:
        """Begin a tick with its checked observations."""
        self._outgoing.tick = self._next
        self._next += 1
        self.has_begun = True
        self._observed = observed
        self._timestamp = observed.timestamp or self._outgoing.wall()
        self._messages.clear()

    def latest(self) -> ObservationSet | None:
        """Return a copy of the observations, with their tick and time; None before the first."""
        if not self.has_begun:
            return None
        copy = ObservationSet()
        copy.CopyFrom(self._observed)
        copy.tick_id, copy.timestamp = self._outgoing.tick, self._timestamp
        return copy

    def serialized(self) -> bytes:
        """Return the observations as bytes for the log, with their tick and time."""
        observed = self._observed
        if observed.timestamp and observed.tick_id == self._outgoing.tick:
            return observed.SerializeToString()
        latest = self.latest()
        return b"" if latest is None else latest.SerializeToString()

    def message_for(self, index: int) -> ActorRunTrialInput:
        """Return the message for one actor. Actors with the same observation share an object."""
        one = self._observed.actors_map[index]
        message = self._messages.get(one)
        if message is None:
            message = self._messages[one] = ActorRunTrialInput(state=NORMAL)
            observation = message.observation  # filled in place, which takes half the time
            observation.tick_id, observation.timestamp = self._outgoing.tick, self._timestamp
            observation.content = self._observed.observations[one]
        return message

    def give_last(self) -> int:
        """Send the final observations; return the number of actors that must acknowledge them."""
        last = ActorRunTrialInput(state=CommunicationState.LAST)
        leaving = 0
        for actor in self._actors:
            if actor.is_present:
                actor.take(Move.LAST)
                leaving += 1
                self._outgoing.to_actor(actor.index, last)
                self._outgoing.to_actor(actor.index, self.message_for(actor.index))
        return leaving
