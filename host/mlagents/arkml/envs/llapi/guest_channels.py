"""Side channels on the side of the guest, which receives a trainer's messages."""

from __future__ import annotations

import logging
import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from arkml.base.loggers import SafeLogger
from arkml.envs.core.world import Pace
from arkml.envs.llapi.side_channel import DefaultTrainingAnalyticsSideChannel, IncomingMessage
from arkml.envs.llapi.side_channel.engine_configuration_channel import (
    EngineConfig,
    EngineConfigurationChannel,
)
from arkml.envs.llapi.side_channel.environment_parameters_channel import (
    EnvironmentParametersChannel,
)
from arkml.envs.llapi.side_channel.side_channel_manager import frame, frames
from arkml.envs.llapi.side_channel.stats_side_channel import StatsSideChannel
from arkml.errors import UsageError
from arkml.limits import MIB

logger = SafeLogger(__name__)

Message: TypeAlias = tuple[uuid.UUID, bytes]
"""The id of a channel, and a message on it."""

ENGINE = EngineConfigurationChannel().channel_id
PARAMETERS = EnvironmentParametersChannel().channel_id
STATS = StatsSideChannel().channel_id
ANALYTICS = DefaultTrainingAnalyticsSideChannel.CHANNEL_ID

_Kind = EngineConfigurationChannel.ConfigurationType
_AS_IT_IS = EngineConfig(None, None, None, None, None, None)
_HEARD = 1000  # most parameters that new instances get again, and channels that are logged
_PARAMETER_BYTES = 4096  # most bytes of a parameter that new instances get again

MOST_MESSAGES, MOST_BYTES = 1_000, 4 * MIB
"""Maximum number and size in bytes of the messages that a trainer sends with a step or reset."""
_WAITING_MESSAGES, _WAITING_BYTES = 10_000, 16 * MIB  # for an instance that is over


class GuestChannels:
    """
    Handles a trainer's messages: engine settings are stored, all others go to the guest by `tell`.

    `pace` gets the speed of the clock; other engine settings have no effect. `tell` gets the
    channel's 16-byte id and the message; if it returns False, that is logged, once for a channel. A
    new instance gets all environment parameters again. Without an instance, messages wait, up to a
    limit.
    """

    def __init__(self, tell: Callable[[bytes], bool], pace: Pace) -> None:
        self.engine: EngineConfig = _AS_IT_IS
        """Engine settings by the trainer; None for a setting that it has not set."""
        self._tell = tell
        self._pace = pace
        self._waiting: list[Message] = []
        self._waiting_bytes = 0
        self._parameters: dict[str, bytes] = {}
        self._told_of: set[uuid.UUID] = set()
        self._logged: set[str] = set()

    def hear(self, block: bytes) -> None:
        """
        Handle a block with the messages of one step or reset.

        Raises UnityEnvironmentException, before handling any, if the block is cut off or exceeds a
        limit.
        """
        self.take(messages_of(block))

    def take(self, messages: Sequence[Message]) -> None:
        """Queue messages; beyond the limits they are dropped, which is logged once."""
        size = sum(len(message) for _, message in messages)
        if (
            len(self._waiting) + len(messages) > _WAITING_MESSAGES
            or self._waiting_bytes + size > _WAITING_BYTES
        ):
            self._log_once("Messages of side channels are lost: too many wait for a reset")
            return
        self._waiting += messages
        self._waiting_bytes += size

    def attend(self, *, anew: bool) -> None:
        """Apply queued messages; with `anew`, a new instance of the guest is made afterwards."""
        if not self._waiting and not anew:
            return
        if anew:
            for message in self._parameters.values():
                self._tell(PARAMETERS.bytes_le + message)
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        for channel_id, message in waiting:
            if channel_id == ENGINE:
                self._set(message)
            elif channel_id != ANALYTICS:  # meant for Unity: it says which trainer is used
                self._pass_on(channel_id, message)

    def _set(self, message: bytes) -> None:
        try:
            changed = self._read(IncomingMessage(message))
            if "time_scale" in changed:
                self._pace.time_scale = changed["time_scale"]
            if "capture_frame_rate" in changed:
                self._pace.capture_rate = changed["capture_frame_rate"]
        except (struct.error, UsageError) as error:
            self._log_once(f"A setting of the engine is ignored: {error}")
        else:
            self.engine = self.engine._replace(**changed)

    def _pass_on(self, channel_id: uuid.UUID, message: bytes) -> None:
        if channel_id == PARAMETERS:
            self._remember(message)
        if self._tell(channel_id.bytes_le + message) or channel_id in self._told_of:
            return
        if len(self._told_of) < _HEARD:
            self._told_of.add(channel_id)
            logger.info(
                "The guest exports no arkml_side_channel: what comes by channel %s is ignored",
                channel_id,
            )

    def _remember(self, message: bytes) -> None:
        if len(message) > _PARAMETER_BYTES:
            return
        try:
            name = IncomingMessage(message).read_string()
        except (struct.error, UnicodeDecodeError):
            return  # the guest may still understand the message
        if name in self._parameters or len(self._parameters) < _HEARD:
            self._parameters[name] = message

    def _log_once(self, text: str, level: int = logging.ERROR) -> None:
        """Log a message only once, since a trainer may cause it in every step."""
        if text not in self._logged and len(self._logged) < _HEARD:
            self._logged.add(text)
            logger.log(level, text)

    def _read(self, message: IncomingMessage) -> dict[str, Any]:
        """Return the settings in a message, {} for an unknown kind. Raises struct.error."""
        kind = message.read_int32(-1)
        match kind:
            case _Kind.SCREEN_RESOLUTION:
                return {"width": message.read_int32(), "height": message.read_int32()}
            case _Kind.QUALITY_LEVEL:
                return {"quality_level": message.read_int32()}
            case _Kind.TIME_SCALE:
                return {"time_scale": message.read_float32()}
            case _Kind.TARGET_FRAME_RATE:
                return {"target_frame_rate": message.read_int32()}
            case _Kind.CAPTURE_FRAME_RATE:
                return {"capture_frame_rate": message.read_int32()}
            case _:
                self._log_once(f"The engine has no setting of kind {kind}", logging.INFO)
                return {}


def messages_of(block: bytes) -> list[Message]:
    """Split a block of a step or reset into messages. Raises UnityEnvironmentException."""
    return frames(block, most=MOST_MESSAGES, most_bytes=MOST_BYTES)


def stats_block(stats: StatsSideChannel) -> bytes:
    """Take a guest's statistics out of the channel, and return them as a block of messages."""
    # An OutgoingMessage for each number would cost more than the step.
    block = bytearray()
    for name, values in stats.get_and_reset_stats().items():
        text = name.encode("ascii", "replace")
        start = struct.pack("<i", len(text)) + text
        for value, method in values:
            block += frame(STATS, start + struct.pack("<fi", value, method.value))
    return bytes(block)
