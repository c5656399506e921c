"""Named numbers that both sides may set."""

from __future__ import annotations

import uuid

from arkml.envs.llapi.side_channel import IncomingMessage, OutgoingMessage, SideChannel


class FloatPropertiesChannel(SideChannel):
    """Numbers by name."""

    def __init__(self, channel_id: uuid.UUID | None = None) -> None:
        self._float_properties: dict[str, float] = {}
        super().__init__(channel_id or uuid.UUID("60ccf7d0-4f7e-11ea-b238-784f4387d1f7"))

    def on_message_received(self, msg: IncomingMessage) -> None:
        name = msg.read_string()
        self._float_properties[name] = msg.read_float32()

    def set_property(self, key: str, value: float) -> None:
        """Set a number here, and there with the next step."""
        message = OutgoingMessage()
        message.write_string(key)
        message.write_float32(value)
        self._float_properties[key] = value
        self.queue_message_to_send(message)

    def get_property(self, key: str) -> float | None:
        """A number, or None."""
        return self._float_properties.get(key)

    def list_properties(self) -> list[str]:
        """The names of all numbers."""
        return list(self._float_properties)

    def get_property_dict_copy(self) -> dict[str, float]:
        """All numbers by name."""
        return dict(self._float_properties)
