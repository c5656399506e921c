"""The channel for raw bytes in both directions."""

from __future__ import annotations

import uuid
from collections import deque

from arkml.envs.llapi.side_channel import IncomingMessage, OutgoingMessage, SideChannel

_MOST_BYTES = 64 << 20
_MESSAGE_BYTES = 64  # that a message takes beside its content


class RawBytesChannel(SideChannel):
    """Sends bytes and collects received ones, of which the oldest beyond 64 MiB are dropped."""

    def __init__(self, channel_id: uuid.UUID) -> None:
        super().__init__(channel_id)
        self._received_messages: deque[bytearray] = deque()
        self._received_bytes = 0

    def on_message_received(self, msg: IncomingMessage) -> None:
        message = msg.get_raw_bytes()
        self._received_messages.append(message)
        self._received_bytes += len(message) + _MESSAGE_BYTES
        while self._received_bytes > _MOST_BYTES and len(self._received_messages) > 1:
            self._received_bytes -= len(self._received_messages.popleft()) + _MESSAGE_BYTES

    def get_and_clear_received_messages(self) -> list[bytearray]:
        """Return the messages since the last call, oldest first."""
        received, self._received_messages = self._received_messages, deque()
        self._received_bytes = 0
        return list(received)

    def send_raw_data(self, data: bytes | bytearray) -> None:
        """Send `data` with the next step or reset."""
        msg = OutgoingMessage()
        msg.set_raw_bytes(data)
        self.queue_message_to_send(msg)
