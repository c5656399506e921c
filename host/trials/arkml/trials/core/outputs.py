"""Outputs of a trial, such as messages to send, streams to open or end, and log entries."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from arkml.trials.core.hosting import Acted
from arkml.trials.wire.actor_pb2 import ActorRunTrialInput
from arkml.trials.wire.common_pb2 import TrialState
from arkml.trials.wire.environment_pb2 import EnvRunTrialInput
from arkml.trials.wire.players_pb2 import View


class CallEnvironment(NamedTuple):
    """Open a stream to the environment."""


class CallActor(NamedTuple):
    """Open a stream to an actor."""

    actor: int


class ToEnvironment(NamedTuple):
    """Send a message to the environment."""

    message: EnvRunTrialInput


class GiveActions(NamedTuple):
    """Give a hosted environment the actions of a tick; see HostedEnvironment."""

    tick: int
    acted: Sequence[Acted]
    most_ahead: int


class Show(NamedTuple):
    """Show spectators of a hosted trial the tick that begins."""

    view: View


class ToActor(NamedTuple):
    """Send a message to an actor. Several actors may share one message object."""

    actor: int
    message: ActorRunTrialInput


class EndEnvironment(NamedTuple):
    """End the stream to the environment after its queued messages."""


class EndActor(NamedTuple):
    """End the stream to an actor after its queued messages."""

    actor: int


class Changed(NamedTuple):
    """Note a new state of the trial."""

    state: TrialState


class EntryKind(StrEnum):
    """Kinds of log entries."""

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
    Entries of one kind, tick and time as columns, with the fields of Entry.

    `names` and `contents` have equal length; `notes` and `origins` do, too, unless they are empty.
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
        """Return the entries one by one."""
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
    """A sentence for the operator's log, optionally as a warning."""

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
