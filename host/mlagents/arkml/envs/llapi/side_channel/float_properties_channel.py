"""The channel for named floats that both sides may set."""

from __future__ import annotations

import uuid

from arkml.envs.llapi.side_channel import IncomingMessage, OutgoingMessage, SideChannel

_MOST_FLOATS = 65_536
_LONGEST = 1_024  # letters of the name of one that the player sets


class FloatPropertiesChannel(SideChannel):
    """Named floats that Python and the player share; at most 65,536 set by the player are kept."""

    def __init__(self, channel_id: uuid.UUID | None = None) -> None:
        super().__init__(channel_id or uuid.UUID("60ccf7d0-4f7e-11ea-b238-784f4387d1f7"))
        self._float_properties: dict[str, float] = {}

    def on_message_received(self, msg: IncomingMessage) -> None:
        key, value = msg.read_string(), msg.read_float32()
        is_known = key in self._float_properties
        if is_known or (len(self._float_properties) < _MOST_FLOATS and len(key) <= _LONGEST):
            self._float_properties[key] = value

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
        """Return the names of all floats that are set."""
        return list(self._float_properties)

    def get_property_dict_copy(self) -> dict[str, float]:
        """Return a copy of all floats."""
        return dict(self._float_properties)
