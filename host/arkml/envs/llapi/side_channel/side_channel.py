"""One channel."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod

from arkml.envs.llapi.side_channel.incoming_message import IncomingMessage
from arkml.envs.llapi.side_channel.outgoing_message import OutgoingMessage


class SideChannel(ABC):
    """
    Sends and gets messages under an id that both sides know.

    What is queued goes out with the next step.
    """

    def __init__(self, channel_id: uuid.UUID) -> None:
        self._channel_id = channel_id
        self.message_queue: list[bytearray] = []

    def queue_message_to_send(self, msg: OutgoingMessage) -> None:
        """Send a message with the next step."""
        self.message_queue.append(msg.buffer)

    @abstractmethod
    def on_message_received(self, msg: IncomingMessage) -> None:
        """A message came; called once for each."""

    @property
    def channel_id(self) -> uuid.UUID:
        return self._channel_id
