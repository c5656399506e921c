"""The channel for named floats that both sides may set."""

from __future__ import annotations

import uuid

from arkml.envs.llapi.side_channel import IncomingMessage, OutgoingMessage, SideChannel


class FloatPropertiesChannel(SideChannel):
    """The floats, as set last by either side."""

    def __init__(self, channel_id: uuid.UUID | None = None) -> None:
        super().__init__(channel_id or uuid.UUID("60ccf7d0-4f7e-11ea-b238-784f4387d1f7"))
        self._float_properties: dict[str, float] = {}

    def on_message_received(self, msg: IncomingMessage) -> None:
        key = msg.read_string()
        self._float_properties[key] = msg.read_float32()

    def set_property(self, key: str, value: float) -> None:
        """Set a float here at once, and in the player with the next step or reset."""
        msg = OutgoingMessage()
        msg.write_string(key)
        msg.write_float32(value)
        self._float_properties[key] = value
        self.queue_message_to_send(msg)

    def get_property(self, key: str) -> float | None:
        """Return the float with a name, or None."""
        return self._float_properties.get(key)

    def list_properties(self) -> list[str]:
        """Return the names that are set."""
        return list(self._float_properties)

    def get_property_dict_copy(self) -> dict[str, float]:
        """Return a copy of all floats."""
        return dict(self._float_properties)
