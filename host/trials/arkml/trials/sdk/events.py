"""The events that sessions receive, with observations, actions, rewards and messages."""

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

_TYPES = Default()  # of all generated modules that this program has imported


class EventType(Enum):
    """
    The types of events.

    ACTIVE are those of a trial that runs. ENDING ones are of a trial that ends: an environment has
    to answer the actions with its final observations, and actors need not act. FINAL is the last
    event and has no data. NONE is never received.
    """

    NONE = 0
    ACTIVE = 1
    ENDING = 2
    FINAL = 3


class ActorStatus(Enum):
    """The states of actors of which an environment receives actions."""

    UNKNOWN = 0
    ACTIVE = 1
    UNAVAILABLE = 2
    DEFAULT = 3


@dataclass(slots=True)
class RecvObservation:
    """An observation; `timestamp` is in nanoseconds since 1970."""

    tick_id: int
    timestamp: int
    observation: AnyValue

    @property
    def snapshot(self) -> AnyValue:
        """The observation, by the older of its two published names."""
        return self.observation

    @snapshot.setter
    def snapshot(self, value: AnyValue) -> None:
        self.observation = value


@dataclass(slots=True)
class RecvAction:
    """
    An action of the actor at `actor_index` of `get_active_actors`.

    `action` is None where `status` is UNAVAILABLE. `timestamp` is in nanoseconds since 1970.
    """

    actor_index: int
    tick_id: int
    status: ActorStatus
    timestamp: int
    action: AnyValue


@dataclass(slots=True)
class RecvRewardSource:
    """One sender's part of a reward; `user_data` is None where none was sent."""

    __repr__ = short_repr

    sender_name: str
    value: float
    confidence: float
    user_data: Any | None

    @classmethod
    def of(cls, source: common.RewardSource) -> RecvRewardSource:
        """Return a source as it was received."""
        data = source.user_data if source.HasField("user_data") else None
        return cls(source.sender_name, source.value, source.confidence, data)


@dataclass(slots=True)
class RecvReward:
    """The reward of a tick, aggregated from all sources."""

    __repr__ = short_repr

    tick_id: int
    receiver_name: str
    value: float
    sources: list[RecvRewardSource]

    @classmethod
    def of(cls, reward: common.Reward) -> RecvReward:
        """Return a reward as it was received."""
        sources = [RecvRewardSource.of(source) for source in reward.sources]
        return cls(reward.tick_id, reward.receiver_name, reward.value, sources)

    def get_nb_sources(self) -> int:
        """Return the number of sources."""
        return len(self.sources)

    def all_sources(self) -> Iterator[RecvRewardSource]:
        """Iterate over the sources."""
        return iter(self.sources)


@dataclass(slots=True)
class RecvMessage:
    """
    A message of another actor, or of the environment.

    `payload` is of the type that was sent, and a google.protobuf.Any where this program does not
    know that type. Either way it has the methods of Any, `Unpack`, `Is` and `TypeName`, by which
    programs for Cogment's SDK read it.
    """

    __repr__ = short_repr

    tick_id: int
    sender_name: str
    receiver_name: str
    payload: Message

    @classmethod
    def of(cls, message: common.Message) -> RecvMessage:
        """Return a message as it was received."""
        payload = unpacked(message.payload)
        return cls(message.tick_id, message.sender_name, message.receiver_name, payload)


@dataclass(slots=True)
class RecvEvent:
    """
    An event: its type and what came with it.

    Actors receive `observation`, which is None if there is none, and `rewards`; environments
    receive `actions`, one for each actor; both receive `messages`.
    """

    __repr__ = short_repr

    type: EventType
    observation: RecvObservation | None = None
    actions: list[RecvAction] = field(default_factory=list)
    rewards: list[RecvReward] = field(default_factory=list)
    messages: list[RecvMessage] = field(default_factory=list)


Reward = RecvReward
"""The name that the JavaScript SDK has for RecvReward."""

RewardSource = RecvRewardSource
"""The name that the JavaScript SDK has for RecvRewardSource."""


def unpacked(packed: Any) -> Message:
    """Return the message in `packed`, or `packed` itself if it is of an unknown type or damaged."""
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
    """Write a message into `into`, which takes over a message that is packed already."""
    if isinstance(value, Any):
        into.CopyFrom(value)
    else:
        into.Pack(value)


def _add_methods_of_any(message_class: type[Message]) -> None:
    """
    Let messages of a class be read as if they were packed.

    Generated classes have no subclasses, and what stands in for a message cannot be copied from.
    """
    added: AnyValue = message_class
    added.Unpack = _unpack
    added.Is = _is
    added.TypeName = _type_name


def _unpack(self: Message, msg: Message) -> bool:
    """Copy the message into one of its type; return False, and copy nothing, for another."""
    if not _is(self, msg.DESCRIPTOR):
        return False
    msg.CopyFrom(self)
    return True


def _is(self: Message, descriptor: AnyValue) -> bool:
    """Return whether the message is of a type."""
    return bool(self.DESCRIPTOR.full_name == descriptor.full_name)


def _type_name(self: Message) -> str:
    """Return the full name of the message's type."""
    return str(self.DESCRIPTOR.full_name)
