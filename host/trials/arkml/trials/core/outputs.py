"""Outputs of a trial: messages to send, streams to open and to end, entries of its log."""

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
    """Open a stream to an actor that does not join by itself."""

    actor: int


class ToEnvironment(NamedTuple):
    """Send a message to the environment."""

    message: EnvRunTrialInput


class GiveActions(NamedTuple):
    """Give a hosted environment the actions of a tick, see HostedEnvironment."""

    tick: int
    acted: Sequence[Acted]
    most_ahead: int


class Show(NamedTuple):
    """Give those who look at a hosted trial the tick that begins."""

    view: View


class ToActor(NamedTuple):
    """Send a message to an actor. Several actors may be sent the same object."""

    actor: int
    message: ActorRunTrialInput


class EndEnvironment(NamedTuple):
    """End the stream to the environment after what was sent."""


class EndActor(NamedTuple):
    """End the stream to an actor after what was sent."""

    actor: int


class Changed(NamedTuple):
    """The trial has another state."""

    state: TrialState


class EntryKind(StrEnum):
    """Kinds of entries of the log."""

    OBSERVATIONS = "observations"
    ACTION = "action"
    REWARD = "reward"
    MESSAGE = "message"
    EVENT = "event"


class Entry(NamedTuple):
    """
    An entry of the log of a trial.

    `name` is the actor of an action or an event and the receiver of a reward or a message, `sender`
    where a reward or a message comes from. `content` is the action, or a serialized ObservationSet,
    RewardSource or google.protobuf.Any. `note` is the text of an event, and for an action one of
    ActionNote, with the seconds for which it was held (`Acted.noted`). `origin` is the person or
    the policy version of an action or an event in a hosted trial, empty if unknown.
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
    Entries of one kind, tick and time, by column; their fields are those of Entry.

    `names` and `contents` have one length, as `notes` and `origins` where these are not empty.
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
        """Return each of the entries."""
        blank = ("",) * len(self.names)
        return [
            Entry(self.kind, self.tick, self.timestamp, name, self.sender, content, note, origin)
            for name, content, note, origin in zip(
                self.names, self.contents, self.notes or blank, self.origins or blank, strict=True
            )
        ]


Logged: TypeAlias = Entry | Entries
"""One entry of the log of a trial, or many."""


class Notice(NamedTuple):
    """A sentence for the operator's log, a warning or not."""

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
