"""How fast and how large a simulation runs."""

from __future__ import annotations

import uuid
from enum import IntEnum
from typing import NamedTuple

from arkml.envs.llapi.exception import UnityCommunicationException, UnitySideChannelException
from arkml.envs.llapi.side_channel import IncomingMessage, OutgoingMessage, SideChannel


class EngineConfig(NamedTuple):
    """
    Width and height of the display, quality, how much faster than real time, frames a second to
    aim at (-1 for as many as possible) and to pretend. None leaves a value as it is.
    """

    width: int | None
    height: int | None
    quality_level: int | None
    time_scale: float | None
    target_frame_rate: int | None
    capture_frame_rate: int | None

    @staticmethod
    def default_config() -> EngineConfig:
        return EngineConfig(80, 80, 1, 20.0, -1, 60)


class EngineConfigurationChannel(SideChannel):
    """Sends the configuration of the engine."""

    class ConfigurationType(IntEnum):
        SCREEN_RESOLUTION = 0
        QUALITY_LEVEL = 1
        TIME_SCALE = 2
        TARGET_FRAME_RATE = 3
        CAPTURE_FRAME_RATE = 4

    def __init__(self) -> None:
        super().__init__(uuid.UUID("e951342c-4f7e-11ea-b238-784f4387d1f7"))

    def on_message_received(self, msg: IncomingMessage) -> None:
        """Raises UnityCommunicationException: environments say nothing here."""
        del msg
        raise UnityCommunicationException(
            "The EngineConfigurationChannel received a message from Unity, this should not have"
            " happened."
        )

    def set_configuration_parameters(
        self,
        width: int | None = None,
        height: int | None = None,
        quality_level: int | None = None,
        time_scale: float | None = None,
        target_frame_rate: int | None = None,
        capture_frame_rate: int | None = None,
    ) -> None:
        """
        Send what is given, a message for each.

        Raises UnitySideChannelException for a width without a height, or the reverse.
        """
        if (width is None) != (height is None):
            raise UnitySideChannelException(
                "You cannot set the width/height of the screen resolution without also setting the"
                " height/width"
            )
        kinds = self.ConfigurationType
        if width is not None and height is not None:
            self._send(kinds.SCREEN_RESOLUTION, width, height)
        if quality_level is not None:
            self._send(kinds.QUALITY_LEVEL, quality_level)
        if time_scale is not None:
            message = OutgoingMessage()
            message.write_int32(kinds.TIME_SCALE)
            message.write_float32(time_scale)
            self.queue_message_to_send(message)
        if target_frame_rate is not None:
            self._send(kinds.TARGET_FRAME_RATE, target_frame_rate)
        if capture_frame_rate is not None:
            self._send(kinds.CAPTURE_FRAME_RATE, capture_frame_rate)

    def set_configuration(self, config: EngineConfig) -> None:
        """Send all of a configuration that is not None."""
        self.set_configuration_parameters(**config._asdict())

    def _send(self, *numbers: int) -> None:
        message = OutgoingMessage()
        for number in numbers:
            message.write_int32(number)
        self.queue_message_to_send(message)
