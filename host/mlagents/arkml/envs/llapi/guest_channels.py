"""The guest's end of the side channels."""

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
"""A channel and what it brings."""

ENGINE = EngineConfigurationChannel().channel_id
PARAMETERS = EnvironmentParametersChannel().channel_id
STATS = StatsSideChannel().channel_id
ANALYTICS = DefaultTrainingAnalyticsSideChannel.CHANNEL_ID

_Kind = EngineConfigurationChannel.ConfigurationType
_AS_IT_IS = EngineConfig(None, None, None, None, None, None)
_HEARD = 1000  # parameters that new instances get again, and channels that were logged
_PARAMETER_BYTES = 4096  # of a parameter that new instances get again

MOST_MESSAGES, MOST_BYTES = 1_000, 4 * MIB
"""The messages that a trainer may send with one step or reset, and their bytes."""
_WAITING_MESSAGES, _WAITING_BYTES = 10_000, 16 * MIB  # for an instance that is over


class GuestChannels:
    """
    Messages of a trainer: settings of the engine are kept, the rest goes to the guest by `tell`.

    The speed of the clock is set in `pace`; the other settings change nothing. `tell` gets the 16
    bytes that name the channel and the message; where it returns False that is logged, once for a
    channel. A new instance gets all parameters of the environment again. While there is none,
    messages wait, up to a limit.
    """

    def __init__(self, tell: Callable[[bytes], bool], pace: Pace) -> None:
        self.engine: EngineConfig = _AS_IT_IS
        """The settings of the engine by the trainer; None where it has set nothing."""
        self._tell = tell
        self._pace = pace
        self._waiting: list[Message] = []
        self._waiting_bytes = 0
        self._parameters: dict[str, bytes] = {}
        self._told_of: set[uuid.UUID] = set()
        self._logged: set[str] = set()

    def hear(self, block: bytes) -> None:
        """
        Take the messages of one step or reset.

        Raises UnityEnvironmentException for a block that is cut off or over the limits, of which
        none is taken.
        """
        self.take(messages_of(block))

    def take(self, messages: Sequence[Message]) -> None:
        """Take messages; those over the limits of what may wait are lost, which is logged once."""
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
        """Apply the messages; `anew` if a new instance of the guest follows."""
        if not self._waiting and not anew:
            return
        if anew:
            for message in self._parameters.values():
                self._tell(PARAMETERS.bytes_le + message)
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        for channel_id, message in waiting:
            if channel_id == ENGINE:
                self._set(message)
            elif channel_id != ANALYTICS:  # it is about the trainer, for makers of engines
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
            return  # the guest may make sense of it
        if name in self._parameters or len(self._parameters) < _HEARD:
            self._parameters[name] = message

    def _log_once(self, text: str, level: int = logging.ERROR) -> None:
        """Log a message, the first time; a trainer may cause it with every step."""
        if text not in self._logged and len(self._logged) < _HEARD:
            self._logged.add(text)
            logger.log(level, text)

    def _read(self, message: IncomingMessage) -> dict[str, Any]:
        """Return the settings in a message, none for an unknown kind. Raises struct.error."""
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
    """Return the messages of a step or reset. Raises UnityEnvironmentException."""
    return frames(block, most=MOST_MESSAGES, most_bytes=MOST_BYTES)


def stats_block(stats: StatsSideChannel) -> bytes:
    """Take the statistics of a guest, and return them as the messages that a player sends."""
    # One OutgoingMessage a number would cost more than the step.
    block = bytearray()
    for name, values in stats.get_and_reset_stats().items():
        text = name.encode("ascii", "replace")
        start = struct.pack("<i", len(text)) + text
        for value, method in values:
            block += frame(STATS, start + struct.pack("<fi", value, method.value))
    return bytes(block)
