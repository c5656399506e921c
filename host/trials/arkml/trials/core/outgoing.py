"""Outputs of one trial, collected in order, and the set of its open streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from arkml.trials.core.hosting import Acted
from arkml.trials.core.outputs import (
    CallActor,
    CallEnvironment,
    Changed,
    EndActor,
    EndEnvironment,
    Entries,
    Entry,
    EntryKind,
    GiveActions,
    Notice,
    Output,
    Show,
    ToActor,
    ToEnvironment,
)
from arkml.trials.wire.actor_pb2 import ActorRunTrialInput
from arkml.trials.wire.common_pb2 import CommunicationState, TrialState
from arkml.trials.wire.environment_pb2 import EnvRunTrialInput
from arkml.trials.wire.players_pb2 import View

MOST_COMPLAINTS = 100
"""Maximum number of complaints in one tick; further ones are left out."""

_MOST_TEXT = 1_000


class Outgoing:
    """
    Collects outputs; messages to a stream that is not open are dropped.

    Args:
        wall: Clock for timestamps, in nanoseconds since 1970.
        is_logged: Whether to output log entries.

    Attributes:
        tick: Default tick of log entries.

    """

    def __init__(self, wall: Callable[[], int], *, is_logged: bool) -> None:
        self.tick = 0
        self._complaints = 0, 0  # a tick, and their number in it
        self.wall = wall
        self.is_logged = is_logged
        self._outputs: list[Output] = []
        self.open_actors: set[int] = set()
        """Indices of the actors with an open stream."""
        self._is_environment_open = False

    def take(self) -> list[Output]:
        """Return the outputs since the last call."""
        taken, self._outputs = self._outputs, []
        return taken

    def call_actor(self, index: int) -> None:
        """Open a stream to an actor that is called."""
        self._outputs.append(CallActor(index))
        self.open_actors.add(index)

    def admit_actor(self, index: int) -> None:
        """Use the stream of an actor that joined by itself."""
        self.open_actors.add(index)

    def call_environment(self) -> None:
        """Open a stream to the environment."""
        self._outputs.append(CallEnvironment())
        self._is_environment_open = True

    def to_actor(self, index: int, message: ActorRunTrialInput) -> None:
        """Send a message to an actor."""
        if index in self.open_actors:
            self._outputs.append(ToActor(index, message))

    def to_environment(self, message: EnvRunTrialInput) -> None:
        """Send a message to the environment."""
        if self._is_environment_open:
            self._outputs.append(ToEnvironment(message))

    def act(self, acted: Sequence[Acted], most_ahead: int) -> None:
        """Give a hosted environment the actions of the present tick; see HostedEnvironment."""
        if self._is_environment_open:
            self._outputs.append(GiveActions(self.tick, acted, most_ahead))

    def show(self, view: View) -> None:
        """Show spectators a view of the present tick."""
        self._outputs.append(Show(view))

    def end_actor(self, index: int, details: str) -> None:
        """Send END to an actor and end its stream."""
        if index in self.open_actors:
            state = CommunicationState.END
            self._outputs.append(ToActor(index, ActorRunTrialInput(state=state, details=details)))
            self._outputs.append(EndActor(index))
            self.open_actors.discard(index)

    def end_environment(self, details: str) -> None:
        """Send END to the environment and end its stream."""
        if self._is_environment_open:
            message = EnvRunTrialInput(state=CommunicationState.END, details=details)
            self._outputs += [ToEnvironment(message), EndEnvironment()]
            self._is_environment_open = False

    def end_all(self, details: str) -> None:
        """Send END to all actors and the environment, and end their streams."""
        self.end_environment(details)
        for index in sorted(self.open_actors):
            self.end_actor(index, details)

    def change(self, state: TrialState) -> None:
        """Output a change of the trial's state."""
        self._outputs.append(Changed(state))

    def note(
        self, text: str, *, name: str = "", origin: str = "", is_warning: bool = False
    ) -> None:
        """
        Output a sentence for the operator and an event for the log.

        Args:
            text: The sentence.
            name: Actor that the event is about, empty for none.
            origin: Person that the event is about, empty for none.
            is_warning: Whether the operator's log shows it as a warning.

        """
        self._outputs.append(Notice(text, is_warning))
        self.log(EntryKind.EVENT, name=name, note=text, origin=origin)

    def complain(self, text: str) -> None:
        """Note that a message was ignored, shortened; only the first few in a tick."""
        tick, count = self._complaints
        count = count + 1 if tick == self.tick else 1
        self._complaints = self.tick, count
        if count <= MOST_COMPLAINTS:
            self.note(shortened(text))
        elif count == MOST_COMPLAINTS + 1:
            self.note(f"more messages were not taken in tick {self.tick}")

    def log_acted(self, names: Sequence[str], acted: Sequence[Acted]) -> None:
        """Log the actions of a tick of a hosted trial, by the names of their actors."""
        if self.is_logged:
            kind, tick, at = EntryKind.ACTION, self.tick, self.wall()
            contents, origins = [one.content for one in acted], [one.origin for one in acted]
            notes = [one.noted for one in acted]
            self._outputs.append(Entries(kind, tick, at, names, "", contents, notes, origins))

    def log_rewards(self, names: Sequence[str], sender: str, sources: Sequence[bytes]) -> None:
        """Log rewards of the present tick, given as serialized RewardSource messages."""
        kind, tick, at = EntryKind.REWARD, self.tick, self.wall()
        self._outputs.append(Entries(kind, tick, at, names, sender, sources))

    def log(
        self,
        kind: EntryKind,
        *,
        tick: int | None = None,
        name: str = "",
        sender: str = "",
        content: bytes = b"",
        note: str = "",
        origin: str = "",
    ) -> None:
        """Output an entry for the log; see Entry for its fields."""
        if self.is_logged:
            tick = self.tick if tick is None else tick
            entry = Entry(kind, tick, self.wall(), name, sender, content, note, origin)
            self._outputs.append(entry)


def shortened(text: str) -> str:
    """Return the beginning of a text from another program."""
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."
