"""The channel for engine settings, such as screen size, quality and time scale."""

from __future__ import annotations

import uuid
from enum import IntEnum
from typing import NamedTuple

from arkml.envs.llapi.exception import UnityCommunicationException, UnitySideChannelException
from arkml.envs.llapi.side_channel import IncomingMessage, OutgoingMessage, SideChannel


class EngineConfig(NamedTuple):
    """
    Engine settings. None leaves a setting unchanged.

    Args:
        width: Width of the window in pixels.
        height: Height of the window in pixels.
        quality_level: Unity's quality level.
        time_scale: Seconds of game time for each second, such as 20.0.
        target_frame_rate: Frames for each second of real time.
        capture_frame_rate: Frames for each second of game time.

    """

    width: int | None
    height: int | None
    quality_level: int | None
    time_scale: float | None
    target_frame_rate: int | None
    capture_frame_rate: int | None

    @staticmethod
    def default_config() -> EngineConfig:
        """Return the defaults, such as a small window and 20 times real time."""
        return EngineConfig(80, 80, 1, 20.0, -1, 60)


class EngineConfigurationChannel(SideChannel):
    """Sends engine settings, one message each."""

    class ConfigurationType(IntEnum):
        """Kinds of settings in messages."""

        SCREEN_RESOLUTION = 0
        QUALITY_LEVEL = 1
        TIME_SCALE = 2
        TARGET_FRAME_RATE = 3
        CAPTURE_FRAME_RATE = 4

    def __init__(self) -> None:
        super().__init__(uuid.UUID("e951342c-4f7e-11ea-b238-784f4387d1f7"))

    def on_message_received(self, msg: IncomingMessage) -> None:  # noqa: ARG002 - none may come
        raise UnityCommunicationException(
            "The EngineConfigurationChannel received a message from Unity, "
            "this should not have happened."
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
        Send settings with the next step or reset; None leaves a setting unchanged.

        Args:
            width: Width of the window in pixels.
            height: Height of the window in pixels.
            quality_level: Unity's quality level.
            time_scale: Seconds of game time for each second, such as 20.0.
            target_frame_rate: Frames for each second of real time.
            capture_frame_rate: Frames for each second of game time.

        Raises:
            UnitySideChannelException: Only one of `width` and `height` is given.

        """
        kinds = self.ConfigurationType
        if width is not None and height is not None:
            self._send(kinds.SCREEN_RESOLUTION, width, height)
        elif width is not None or height is not None:
            raise UnitySideChannelException(
                "You cannot set the width/height of the screen resolution "
                "without also setting the height/width"
            )
        if quality_level is not None:
            self._send(kinds.QUALITY_LEVEL, quality_level)
        if time_scale is not None:
            msg = OutgoingMessage()
            msg.write_int32(kinds.TIME_SCALE)
            msg.write_float32(time_scale)
            self.queue_message_to_send(msg)
        if target_frame_rate is not None:
            self._send(kinds.TARGET_FRAME_RATE, target_frame_rate)
        if capture_frame_rate is not None:
            self._send(kinds.CAPTURE_FRAME_RATE, capture_frame_rate)

    def set_configuration(self, config: EngineConfig) -> None:
        """Send the settings of `config` that are not None with the next step or reset."""
        self.set_configuration_parameters(**config._asdict())

    def _send(self, kind: ConfigurationType, *values: int) -> None:
        msg = OutgoingMessage()
        for value in (kind, *values):
            msg.write_int32(value)
        self.queue_message_to_send(msg)
