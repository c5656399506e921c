"""Events that sessions receive, with their observations, actions, rewards and messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any as AnyValue

from google.protobuf.any_pb2 import Any
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from arkml.base.short_reprs import short_repr
from arkml.trials.wire import common_pb2 as common

_TYPES = Default()  # the types of all generated modules that this program has imported


class EventType(Enum):
    """
    Types of events.

    ACTIVE: the trial is running. ENDING: the trial is ending; an environment answers the actions
    with its final observations, and actors need not act. FINAL: the last event, without data. NONE
    is never received.
    """

    NONE = 0
    ACTIVE = 1
    ENDING = 2
    FINAL = 3


class ActorStatus(Enum):
    """The ways in which the action of an actor came about, as the environment is told."""

    UNKNOWN = 0
    ACTIVE = 1
    UNAVAILABLE = 2
    DEFAULT = 3


@dataclass(slots=True)
class RecvObservation:
    """
    An observation, as an actor receives it.

    Args:
        tick_id: Number of the tick.
        timestamp: Time in nanoseconds since 1970.
        observation: Message of the actor class's observation type.

    """

    tick_id: int
    timestamp: int
    observation: AnyValue

    @property
    def snapshot(self) -> AnyValue:
        """The observation, under its older name."""
        return self.observation

    @snapshot.setter
    def snapshot(self, value: AnyValue) -> None:
        self.observation = value


@dataclass(slots=True)
class RecvAction:
    """
    An action of one actor, as the environment receives it.

    Args:
        actor_index: Index of the actor in `get_active_actors`.
        tick_id: Number of the tick.
        status: ACTIVE if the actor sent the action, DEFAULT if its default action was used.
        timestamp: Time in nanoseconds since 1970.
        action: The action, None if `status` is UNAVAILABLE.

    """

    actor_index: int
    tick_id: int
    status: ActorStatus
    timestamp: int
    action: AnyValue


@dataclass(slots=True)
class RecvRewardSource:
    """
    One sender's part of a reward.

    Args:
        sender_name: Name of the sender.
        value: Value that it gave.
        confidence: Weight of the value in the mean of all sources.
        user_data: Message that came with it, packed; None without one.

    """

    __repr__ = short_repr

    sender_name: str
    value: float
    confidence: float
    user_data: Any | None

    @classmethod
    def of(cls, source: common.RewardSource) -> RecvRewardSource:
        """Return a source of a reward from the protobuf message that the session received."""
        data = source.user_data if source.HasField("user_data") else None
        return cls(source.sender_name, source.value, source.confidence, data)


@dataclass(slots=True)
class RecvReward:
    """
    The reward of an actor for one tick, aggregated from all senders.

    Args:
        tick_id: Number of the tick.
        receiver_name: Name of the actor.
        value: Mean of the sources' values, weighted by their confidence.
        sources: The parts of all senders.

    """

    __repr__ = short_repr

    tick_id: int
    receiver_name: str
    value: float
    sources: list[RecvRewardSource]

    @classmethod
    def of(cls, reward: common.Reward) -> RecvReward:
        """Return a reward from the protobuf message that the session received."""
        sources = [RecvRewardSource.of(source) for source in reward.sources]
        return cls(reward.tick_id, reward.receiver_name, reward.value, sources)

    def get_nb_sources(self) -> int:
        """Return the number of senders that contributed to the reward."""
        return len(self.sources)

    def all_sources(self) -> Iterator[RecvRewardSource]:
        """Iterate over the parts of the reward, one for each sender."""
        return iter(self.sources)


@dataclass(slots=True)
class RecvMessage:
    """
    A message of another actor or of the environment.

    Args:
        tick_id: Number of the tick.
        sender_name: Name of the sender.
        receiver_name: Name that the sender gave, such as "*".
        payload: The message in its own type, or as google.protobuf.Any if this program does not
            know the type. Both have the methods `Unpack`, `Is` and `TypeName` of Any, because
            programs for Cogment's SDK call them.

    """

    __repr__ = short_repr

    tick_id: int
    sender_name: str
    receiver_name: str
    payload: Message

    @classmethod
    def of(cls, message: common.Message) -> RecvMessage:
        """Return a message from the protobuf message that the session received."""
        payload = unpacked(message.payload)
        return cls(message.tick_id, message.sender_name, message.receiver_name, payload)


@dataclass(slots=True)
class RecvEvent:
    """
    An event of a session.

    Args:
        type: Type of the event.
        observation: Observation of an actor, or None.
        actions: Actions of all actors, in the order of `get_active_actors`; for environments only.
        rewards: Rewards of an actor; for actors only.
        messages: Messages of other participants.

    """

    __repr__ = short_repr

    type: EventType
    observation: RecvObservation | None = None
    actions: list[RecvAction] = field(default_factory=list)
    rewards: list[RecvReward] = field(default_factory=list)
    messages: list[RecvMessage] = field(default_factory=list)


Reward = RecvReward
"""Name of RecvReward in the JavaScript SDK."""

RewardSource = RecvRewardSource
"""Name of RecvRewardSource in the JavaScript SDK."""


def unpacked(packed: Any) -> Message:
    """Return the message in `packed`, or `packed` itself if it is damaged or of an unknown type."""
    try:
        descriptor = _TYPES.FindMessageTypeByName(packed.TypeName())
        message_class = GetMessageClass(descriptor)
        message = message_class()
        message.ParseFromString(packed.value)
    except (KeyError, DecodeError):
        return packed
    if not hasattr(message_class, "Unpack"):
        _add_methods_of_any(message_class)
    return message


def pack(value: Message, into: Any) -> None:
    """Pack a message into `into`; a message that is already packed is copied as it is."""
    if isinstance(value, Any):
        into.CopyFrom(value)
    else:
        into.Pack(value)


def _add_methods_of_any(message_class: type[Message]) -> None:
    """
    Give a message class the methods of Any, so that programs can read it as if it were packed.

    Generated classes cannot be subclassed, and protobuf copies only from real messages, not from a
    wrapper; so the methods are added to the class itself.
    """
    added: AnyValue = message_class
    added.Unpack = _unpack
    added.Is = _is
    added.TypeName = _type_name


def _unpack(self: Message, msg: Message) -> bool:
    """Copy the message into `msg` if it has the same type; return False otherwise."""
    if not _is(self, msg.DESCRIPTOR):
        return False
    msg.CopyFrom(self)
    return True


def _is(self: Message, descriptor: AnyValue) -> bool:
    """Return whether the message has a type."""
    return bool(self.DESCRIPTOR.full_name == descriptor.full_name)


def _type_name(self: Message) -> str:
    """Return the full name of the message's type."""
    return str(self.DESCRIPTOR.full_name)
