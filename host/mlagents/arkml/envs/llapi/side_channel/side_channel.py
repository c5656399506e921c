"""The base class of side channels."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod

from arkml.base.sealed import Sealed
from arkml.envs.llapi.side_channel.incoming_message import IncomingMessage
from arkml.envs.llapi.side_channel.outgoing_message import OutgoingMessage


class SideChannel(Sealed, ABC):
    """A pair of queues between Python and the player, with the same id on both sides."""

    def __init__(self, channel_id: uuid.UUID) -> None:
        self._channel_id = channel_id
        self.message_queue: list[bytearray] = []

    def queue_message_to_send(self, msg: OutgoingMessage) -> None:
        """Send `msg` with the next step or reset."""
        self.message_queue.append(msg.buffer)

    @abstractmethod
    def on_message_received(self, msg: IncomingMessage) -> None:
        """Handle a message of the player, during the step or reset that brought it."""

    @property
    def channel_id(self) -> uuid.UUID:
        """Id of the channel on both sides."""
        return self._channel_id
