"""The channel for raw bytes in both directions."""

from __future__ import annotations

import uuid

from arkml.envs.llapi.side_channel import IncomingMessage, OutgoingMessage, SideChannel


class RawBytesChannel(SideChannel):
    """Sends bytes and collects received ones."""

    def __init__(self, channel_id: uuid.UUID) -> None:
        super().__init__(channel_id)
        self._received_messages: list[bytearray] = []

    def on_message_received(self, msg: IncomingMessage) -> None:
        self._received_messages.append(msg.get_raw_bytes())

    def get_and_clear_received_messages(self) -> list[bytearray]:
        """Return the messages since the last call, oldest first."""
        received, self._received_messages = self._received_messages, []
        return received

    def send_raw_data(self, data: bytes | bytearray) -> None:
        """Send `data` with the next step or reset."""
        msg = OutgoingMessage()
        msg.set_raw_bytes(data)
        self.queue_message_to_send(msg)
