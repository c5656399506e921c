"""The outputs of a trial, such as messages to send and log entries, and their collector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from arkml.trials.core.hosting import Acted
from arkml.trials.wire.actor_pb2 import ActorRunTrialInput
from arkml.trials.wire.common_pb2 import CommunicationState, TrialState
from arkml.trials.wire.environment_pb2 import EnvRunTrialInput
from arkml.trials.wire.players_pb2 import View

MOST_COMPLAINTS = 100
"""Maximum number of complaints in one tick; further ones are left out."""

_MOST_TEXT = 1_000


class CallEnvironment(NamedTuple):
    """An output: open a stream to the environment."""


class CallActor(NamedTuple):
    """An output: open a stream to the actor with this index."""

    actor: int


class ToEnvironment(NamedTuple):
    """An output: send a message to the environment."""

    message: EnvRunTrialInput


class GiveActions(NamedTuple):
    """
    An output: give a hosted environment the actions of a tick.

    Attributes:
        tick: Number of the tick.
        acted: The action of each actor.
        most_ahead: Number of following ticks that may be played ahead by stand-in actions.

    """

    tick: int
    acted: Sequence[Acted]
    most_ahead: int


class Show(NamedTuple):
    """An output: show the tick that begins to spectators of a hosted trial."""

    view: View


class ToActor(NamedTuple):
    """An output: send a message to an actor. Several actors may share one message object."""

    actor: int
    message: ActorRunTrialInput


class EndEnvironment(NamedTuple):
    """An output: end the stream to the environment after its queued messages."""


class EndActor(NamedTuple):
    """An output: end the stream to an actor after its queued messages."""

    actor: int


class Changed(NamedTuple):
    """An output: the trial has a new state."""

    state: TrialState


class EntryKind(StrEnum):
    """The kinds of entries in the log of a trial."""

    OBSERVATIONS = "observations"
    ACTION = "action"
    REWARD = "reward"
    MESSAGE = "message"
    EVENT = "event"


class Entry(NamedTuple):
    """
    An entry of the log of a trial.

    Args:
        kind: Kind of the entry.
        tick: Number of the tick.
        timestamp: Time in nanoseconds since 1970.
        name: Actor of an action or event, or receiver of a reward or message.
        sender: Sender of a reward or message.
        content: An action, or a serialized ObservationSet, RewardSource or google.protobuf.Any.
        note: Text of an event. For an action, an ActionNote, for example "held 0.250"
            (see `Acted.noted`).
        origin: Person or policy version of an action or event in a hosted trial, empty if unknown.

    """

    kind: EntryKind
    tick: int
    timestamp: int
    name: str = ""
    sender: str = ""
    content: bytes = b""
    note: str = ""
    origin: str = ""


class Entries(NamedTuple):
    """
    Several entries of a trial's log, of one kind, tick and time, as columns.

    `names`, `contents`, `notes` and `origins` have one item for each entry; the last two may be
    empty. An item has the meaning of the field of `Entry` with the same name in the singular.
    """

    kind: EntryKind
    tick: int
    timestamp: int
    names: Sequence[str]
    sender: str
    contents: Sequence[bytes]
    notes: Sequence[str] = ()
    origins: Sequence[str] = ()

    def rows(self) -> list[Entry]:
        """Return the entries as a list of single entries."""
        blank = ("",) * len(self.names)
        return [
            Entry(self.kind, self.tick, self.timestamp, name, self.sender, content, note, origin)
            for name, content, note, origin in zip(
                self.names, self.contents, self.notes or blank, self.origins or blank, strict=True
            )
        ]


Logged: TypeAlias = Entry | Entries
"""One or many log entries of a trial."""


class Notice(NamedTuple):
    """An output: a sentence for the operator's log, optionally as a warning."""

    text: str
    is_warning: bool = False


Output: TypeAlias = (
    CallEnvironment
    | CallActor
    | ToEnvironment
    | GiveActions
    | Show
    | ToActor
    | EndEnvironment
    | EndActor
    | Changed
    | Entry
    | Entries
    | Notice
)


class Outgoing:
    """
    Collects the outputs of a trial; messages to a stream that is not open are dropped.

    Args:
        wall: Clock for timestamps, in nanoseconds since 1970.
        is_logged: Whether to output log entries.

    Attributes:
        outputs: The outputs since the trial's owner took the last ones.
        tick: The present tick; log entries are about it unless they name another one.
        open_actors: Indices of the actors with an open stream.

    """

    def __init__(self, wall: Callable[[], int], *, is_logged: bool) -> None:
        self.outputs: list[Output] = []
        self.tick = 0
        self.wall = wall
        self.is_logged = is_logged
        self.open_actors: set[int] = set()
        self._is_environment_open = False
        self._complaints = 0, 0  # a tick, and their number in it

    def call_actor(self, index: int) -> None:
        """Open a stream to an actor that is called."""
        self.outputs.append(CallActor(index))
        self.open_actors.add(index)

    def call_environment(self) -> None:
        """Open a stream to the environment."""
        self.outputs.append(CallEnvironment())
        self._is_environment_open = True

    def to_actor(self, index: int, message: ActorRunTrialInput) -> None:
        """Send a message to an actor."""
        if index in self.open_actors:
            self.outputs.append(ToActor(index, message))

    def to_environment(self, message: EnvRunTrialInput) -> None:
        """Send a message to the environment."""
        if self._is_environment_open:
            self.outputs.append(ToEnvironment(message))

    def act(self, acted: Sequence[Acted], most_ahead: int) -> None:
        """
        Give a hosted environment the actions of the present tick.

        `most_ahead` is the number of following ticks that it may play ahead by stand-in actions.
        """
        if self._is_environment_open:
            self.outputs.append(GiveActions(self.tick, acted, most_ahead))

    def end_actor(self, index: int, details: str) -> None:
        """Send END with a reason to an actor, and end its stream."""
        if index in self.open_actors:
            state = CommunicationState.END
            self.outputs.append(ToActor(index, ActorRunTrialInput(state=state, details=details)))
            self.outputs.append(EndActor(index))
            self.open_actors.discard(index)

    def end_all(self, details: str) -> None:
        """Send END with a reason to all actors and the environment, and end their streams."""
        if self._is_environment_open:
            message = EnvRunTrialInput(state=CommunicationState.END, details=details)
            self.outputs += [ToEnvironment(message), EndEnvironment()]
            self._is_environment_open = False
        for index in sorted(self.open_actors):
            self.end_actor(index, details)

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
        self.outputs.append(Notice(text, is_warning))
        self.log(EntryKind.EVENT, name=name, note=text, origin=origin)

    def complain(self, text: str) -> None:
        """
        Output a sentence about a message that was ignored, shortened.

        Only the first few sentences of a tick are output.
        """
        tick, count = self._complaints
        count = count + 1 if tick == self.tick else 1
        self._complaints = self.tick, count
        if count <= MOST_COMPLAINTS:
            self.note(shortened(text))
        elif count == MOST_COMPLAINTS + 1:
            self.note(f"more messages were not taken in tick {self.tick}")

    def log_acted(self, names: Sequence[str], acted: Sequence[Acted]) -> None:
        """Log the actions of a tick of a hosted trial; `names` are the names of the actors."""
        kind, tick, at = EntryKind.ACTION, self.tick, self.wall()
        contents, origins = [one.content for one in acted], [one.origin for one in acted]
        notes = [one.noted for one in acted]
        self.outputs.append(Entries(kind, tick, at, names, "", contents, notes, origins))

    def log_rewards(self, names: Sequence[str], sender: str, sources: Sequence[bytes]) -> None:
        """
        Log rewards of the present tick.

        Args:
            names: Names of the receivers.
            sender: Name of the sender.
            sources: A serialized RewardSource for each receiver.

        """
        kind, tick, at = EntryKind.REWARD, self.tick, self.wall()
        self.outputs.append(Entries(kind, tick, at, names, sender, sources))

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
        """
        Output an entry for the trial's log, by default of the present tick.

        Args:
            kind: Kind of the entry.
            tick: Number of the tick, None for the present one.
            name: Actor of an action or event, or receiver of a reward or message.
            sender: Sender of a reward or message.
            content: An action, or a serialized message.
            note: Text of an event, or source of an action.
            origin: Person or policy version of an action or event, empty if unknown.

        """
        if self.is_logged:
            tick = self.tick if tick is None else tick
            entry = Entry(kind, tick, self.wall(), name, sender, content, note, origin)
            self.outputs.append(entry)


def shortened(text: str) -> str:
    """Return the beginning of a text that another program sent, short enough for a log."""
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."
