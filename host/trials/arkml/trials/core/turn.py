"""One tick of a trial: the observations that actors get, and the actions that they answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from arkml.trials.core.hosting import ActionNote
from arkml.trials.core.mail import AUTO
from arkml.trials.core.observations import PresentObservations
from arkml.trials.core.outgoing import Outgoing
from arkml.trials.core.outputs import EntryKind
from arkml.trials.core.places import ActorPlace, Breach
from arkml.trials.core.states import Move, Phase
from arkml.trials.wire.common_pb2 import Action, CommunicationState
from arkml.trials.wire.environment_pb2 import ActionSet, EnvRunTrialInput

NORMAL = CommunicationState.NORMAL

MOST_BYTES = 64 << 20
"""Bytes of the actions of one tick; an actor that sends more breaks the protocol."""


class TurnRules(Protocol):
    """The rules by which the ticks of one trial begin and end."""

    @property
    def due(self) -> float | None:
        """Time by which something is late, None if there is no such time."""

    @property
    def is_complete(self) -> bool:
        """True if there were observations, and no action is awaited."""

    def check(self) -> None:
        """Raise Breach unless what is needed beside the observations was sent."""

    def begin(self, now: float) -> None:
        """Give actors their observations, and wait for their actions."""

    def take(self, actor: ActorPlace, action: Action, now: float) -> None:
        """Take in an action of an actor. Raises Breach for one that is too large."""

    def late(self, now: float) -> list[tuple[ActorPlace, str]]:
        """Return the actors that are lost since they are late with reasons; look for the next."""

    def release(self, actor: ActorPlace, reason: str) -> None:
        """Go without an actor that was lost, and note it."""

    def leave(self, now: float) -> None:
        """End the tick: give the environment the actions of all actors."""

    def finish(self) -> None:
        """Take in that no more actions are awaited."""


class TrialTurn:
    """
    A tick that ends once all actors have acted.

    The work grows with the number of actors once a tick; an action costs no more for many actors.
    `due` is the time by which an actor is late, None if there is no such time.
    """

    def __init__(
        self, actors: Sequence[ActorPlace], observations: PresentObservations, outgoing: Outgoing
    ) -> None:
        self._actors = actors
        self._observations = observations
        self._outgoing = outgoing
        self._missing = 0
        self._bytes = 0  # of the actions of the tick
        self._began = 0.0
        self.due: float | None = None

    @property
    def is_complete(self) -> bool:
        """True if there were observations, and no action is missing."""
        return self._observations.has_begun and not self._missing

    def check(self) -> None:
        """Do nothing: observations are all that is needed."""

    def begin(self, now: float) -> None:
        """Give actors their observations, and wait for their actions."""
        shortest = 0.0
        self._began, self._missing, self._bytes = now, len(self._actors), 0
        for actor, message in zip(self._actors, self._observations.messages(), strict=True):
            actor.action, actor.is_missing = None, True
            if not actor.is_present:
                self._replace(actor)
                continue
            actor.take(Move.OBSERVE)
            self._outgoing.to_actor(actor.index, message)
            seconds = actor.params.response_timeout
            if seconds > 0 and (not shortest or seconds < shortest):
                shortest = seconds
        self.due = now + shortest if shortest else None

    def take(self, actor: ActorPlace, action: Action, now: float) -> None:  # noqa: ARG002  others need it
        """Take in an action, which counts if it is the first one of the actor in the tick."""
        tick, outgoing = action.tick_id, self._outgoing
        if actor.is_missing and tick in (AUTO, outgoing.tick):
            content = action.content
            if self._bytes + len(content) > MOST_BYTES:
                raise Breach(f"with its action, those of the tick take over {MOST_BYTES} bytes")
            self._bytes += len(content)
            actor.action = content
            actor.is_missing = False
            self._missing -= 1
            if outgoing.is_logged:
                note = str(ActionNote.GIVEN)
                outgoing.log(EntryKind.ACTION, name=actor.name, content=content, note=note)
        elif actor.phase is not Phase.LEAVING:
            outgoing.complain(
                f"an action of {actor.name!r} for tick {tick} was ignored in tick {outgoing.tick}:"
                " it is of another tick, not the first one, or before the first observation"
            )

    def late(self, now: float) -> list[tuple[ActorPlace, str]]:
        """Return the actors that should have acted by now with reasons; look for the next time."""
        timed = list(self._timed())
        self.due = min((due for _, due in timed if due > now), default=None)
        return [
            (actor, f"it did not act within {actor.params.response_timeout:g} s")
            for actor, due in timed
            if due <= now
        ]

    def release(self, actor: ActorPlace, reason: str) -> None:
        """Go without an actor that was lost, by its default action if it is missing."""
        self._outgoing.note(f"actor {actor.name!r} was lost: {reason}")
        if actor.is_missing:
            self._replace(actor)

    def leave(self, now: float) -> None:  # noqa: ARG002  others need it
        """End the tick: send the environment the actions of all actors."""
        self.due = None
        actions = ActionSet(
            tick_id=self._outgoing.tick,
            timestamp=self._outgoing.wall(),
            actions=[actor.action or b"" for actor in self._actors],
            unavailable_actors=[actor.index for actor in self._actors if actor.action is None],
        )
        self._outgoing.to_environment(EnvRunTrialInput(state=NORMAL, action_set=actions))

    def finish(self) -> None:
        """Await no more actions."""
        self._missing, self.due = 0, None
        for actor in self._actors:
            actor.is_missing = False

    def _replace(self, actor: ActorPlace) -> None:
        """Act for a missing actor, by its default action if it has one."""
        actor.is_missing = False
        self._missing -= 1
        has_default = actor.params.HasField("default_action")
        actor.action = actor.params.default_action.content if has_default else None
        note = ActionNote.DEFAULT if has_default else ActionNote.UNAVAILABLE
        content = actor.action or b""
        self._outgoing.log(EntryKind.ACTION, name=actor.name, content=content, note=str(note))

    def _timed(self) -> Iterator[tuple[ActorPlace, float]]:
        for actor in self._actors:
            seconds = actor.params.response_timeout
            if actor.is_missing and seconds > 0:
                yield actor, self._began + seconds
