"""Packing of all side channels' messages into one block of bytes, and unpacking."""

from __future__ import annotations

import math
import struct
import uuid
from collections.abc import Sequence

from arkml.base.loggers import SafeLogger
from arkml.envs.llapi.exception import UnityEnvironmentException
from arkml.envs.llapi.side_channel import IncomingMessage, SideChannel

logger = SafeLogger(__name__)

_MOST_MESSAGES = 65_536  # of a step
_MOST_WARNINGS = 100
_HEADER = 20  # bytes: the channel's id in little-endian form, the length of the message as int32


class SideChannelManager:
    """The side channels of one environment, by id."""

    def __init__(self, side_channels: Sequence[SideChannel] | None = None) -> None:
        self._side_channels_dict = self._get_side_channels_dict(side_channels)
        self._unknown: set[uuid.UUID] = set()

    def process_side_channel_message(self, data: bytes) -> None:
        """
        Pass each message in `data` to its channel, in order; log a warning for unknown channels.

        Raises UnityEnvironmentException, before passing any, if the block is cut off or has more
        than 65,536 messages.
        """
        for channel_id, message in frames(data, most=_MOST_MESSAGES):
            channel = self._side_channels_dict.get(channel_id)
            if channel is None:
                self._warn_of(channel_id)
            else:
                channel.on_message_received(IncomingMessage(message))

    def generate_side_channel_messages(self) -> bytearray:
        """Remove all queued messages, and return them as a block, channel by channel."""
        block = bytearray()
        for channel_id, channel in self._side_channels_dict.items():
            for message in channel.message_queue:
                block += frame(channel_id, message)
            channel.message_queue = []
        return block

    def _warn_of(self, channel_id: uuid.UUID) -> None:
        """Log an unknown channel, once: a player may name it in every step."""
        if channel_id not in self._unknown and len(self._unknown) < _MOST_WARNINGS:
            self._unknown.add(channel_id)
            logger.warning("Unknown side channel data received. Channel type: %s.", channel_id)

    @staticmethod
    def _get_side_channels_dict(
        side_channels: Sequence[SideChannel] | None,
    ) -> dict[uuid.UUID, SideChannel]:
        channels: dict[uuid.UUID, SideChannel] = {}
        for channel in side_channels or ():
            if channel.channel_id in channels:
                raise UnityEnvironmentException(
                    "There cannot be two side channels with "
                    f"the same channel id {channel.channel_id}."
                )
            channels[channel.channel_id] = channel
        return channels


def frame(channel_id: uuid.UUID, message: bytes | bytearray) -> bytes:
    """Return a message in the format of a block."""
    return channel_id.bytes_le + struct.pack("<i", len(message)) + message


def frames(
    data: bytes, *, most: float = math.inf, most_bytes: float = math.inf
) -> list[tuple[uuid.UUID, bytes]]:
    """
    Return the messages of a block with their channels.

    Raises UnityEnvironmentException for more than `most` messages or `most_bytes` bytes, and if the
    block is cut off.
    """
    found: list[tuple[uuid.UUID, bytes]] = []
    offset = 0
    if len(data) > most_bytes:
        raise UnityEnvironmentException(
            f"The side channels bring {len(data):,} bytes at once, the limit is {most_bytes:,}."
        )
    while offset < len(data):
        if len(found) >= most:
            raise UnityEnvironmentException(
                f"The side channels bring more than {most:,} messages at once, the limit."
            )
        if len(data) - offset < _HEADER:
            raise UnityEnvironmentException(
                "There was a problem reading a message in a SideChannel. "
                "Please make sure the version of MLAgents in Unity is "
                "compatible with the Python version."
            )
        channel_id = uuid.UUID(bytes_le=bytes(data[offset : offset + 16]))
        (size,) = struct.unpack_from("<i", data, offset + 16)
        offset += _HEADER
        message = bytes(data[offset : offset + size]) if size >= 0 else b""
        if len(message) != size:
            raise UnityEnvironmentException(
                f"The message received by the side channel {channel_id} was "
                "unexpectedly short. Make sure your Unity Environment "
                "sending side channel data properly."
            )
        found.append((channel_id, message))
        offset += size
    return found
