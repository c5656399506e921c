"""One tick of a trial: observations to the actors, and actions from them."""

from __future__ import annotations

from collections.abc import Sequence

from arkml.trials.core.actors import ActorPlace, Breach, late_by
from arkml.trials.core.hosting import ActionNote
from arkml.trials.core.mail import AUTO, PresentObservations
from arkml.trials.core.outputs import EntryKind, Outgoing
from arkml.trials.core.states import Move, Phase
from arkml.trials.wire.common_pb2 import Action, CommunicationState
from arkml.trials.wire.environment_pb2 import ActionSet, EnvRunTrialInput

NORMAL = CommunicationState.NORMAL

MOST_BYTES = 64 << 20
"""Maximum size of all actions of one tick in bytes; beyond it an actor breaks the protocol."""


class TrialTurn:
    """
    A tick that ends once all actors have acted.

    A tick costs time proportional to the number of actors; a single action costs constant time.
    `due` is the time at which the first actor is late, in seconds; None if no actor has a
    `response_timeout`.

    Args:
        actors: The actors of the trial.
        observations: The latest observations.
        outgoing: Collects the outputs of the trial.

    """

    def __init__(
        self, actors: Sequence[ActorPlace], observations: PresentObservations, outgoing: Outgoing
    ) -> None:
        self._actors = actors
        self._observations = observations
        self._outgoing = outgoing
        timeouts = [(actor, actor.params.response_timeout) for actor in actors]
        self._timeouts = [(actor, seconds) for actor, seconds in timeouts if seconds > 0]
        self._missing = 0
        self._bytes = 0  # total size of the tick's actions
        self._began = 0.0
        self.due: float | None = None

    @property
    def is_complete(self) -> bool:
        """True if there are observations, and all actors have acted."""
        return self._observations.has_begun and not self._missing

    def begin(self, now: float) -> None:
        """Send the actors their observations, and wait for their actions."""
        self._began, self._missing, self._bytes = now, len(self._actors), 0
        for actor in self._actors:
            actor.action, actor.is_missing = None, True
            if actor.is_present:
                actor.take(Move.OBSERVE)
                message = self._observations.message_for(actor.index)
                self._outgoing.to_actor(actor.index, message)
            else:
                self._replace(actor)
        if self._timeouts:
            self.late(now)

    def take(self, actor: ActorPlace, action: Action, now: float) -> None:  # noqa: ARG002  as hosted
        """
        Store an action; only an actor's first one in a tick counts. May raise Breach.

        Args:
            actor: The actor that acts.
            action: The action.
            now: The present time in seconds.

        """
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
        """
        Return each actor whose action is late at `now`, in seconds, with a reason; update `due`.
        """
        began = self._began
        missing = [(actor, began + wait) for actor, wait in self._timeouts if actor.is_missing]
        late, self.due = late_by(missing, now)
        return [
            (actor, f"it did not act within {actor.params.response_timeout:g} s") for actor in late
        ]

    def release(self, actor: ActorPlace, reason: str) -> None:
        """Continue without a lost actor; if its action is missing, its default action is used."""
        self._outgoing.note(f"actor {actor.name!r} was lost: {reason}")
        if actor.is_missing:
            self._replace(actor)

    def leave(self, now: float) -> None:  # noqa: ARG002  as hosted
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
        """Stop waiting for the actors' actions."""
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
