"""Bytes of one's own."""

from __future__ import annotations

import uuid

from arkml.envs.llapi.side_channel import IncomingMessage, OutgoingMessage, SideChannel


class RawBytesChannel(SideChannel):
    """Sends and keeps plain bytes."""

    def __init__(self, channel_id: uuid.UUID) -> None:
        self._received_messages: list[bytearray] = []
        super().__init__(channel_id)

    def on_message_received(self, msg: IncomingMessage) -> None:
        self._received_messages.append(msg.get_raw_bytes())

    def get_and_clear_received_messages(self) -> list[bytearray]:
        """What came since the last call."""
        found, self._received_messages = self._received_messages, []
        return found

    def send_raw_data(self, data: bytes | bytearray) -> None:
        """Send bytes with the next step."""
        message = OutgoingMessage()
        message.set_raw_bytes(data)
        self.queue_message_to_send(message)
