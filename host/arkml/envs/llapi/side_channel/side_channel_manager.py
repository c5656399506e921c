"""All channels of an environment, and the bytes that a step carries for them."""

from __future__ import annotations

import logging
import struct
import uuid
from collections.abc import Sequence

from arkml.envs.llapi.exception import UnityEnvironmentException
from arkml.envs.llapi.side_channel.incoming_message import IncomingMessage
from arkml.envs.llapi.side_channel.side_channel import SideChannel

log = logging.getLogger(__name__)

_ID = 16


class SideChannelManager:
    """
    Packs and unpacks messages: the id (bytes_le), an int32 length, and the message, again and
    again.
    """

    def __init__(self, side_channels: Sequence[SideChannel] | None = None) -> None:
        """Raises UnityEnvironmentException for two channels with one id."""
        self._side_channels_dict: dict[uuid.UUID, SideChannel] = {}
        for channel in side_channels or ():
            if channel.channel_id in self._side_channels_dict:
                raise UnityEnvironmentException(
                    "There cannot be two side channels with the same channel id"
                    f" {channel.channel_id}."
                )
            self._side_channels_dict[channel.channel_id] = channel

    def process_side_channel_message(self, data: bytes | bytearray) -> None:
        """Hand each message to its channel. Raises UnityEnvironmentException for broken ones."""
        offset = 0
        while offset < len(data):
            channel_id, size = _head(data, offset)
            offset += _ID + 4
            message = data[offset : offset + max(size, 0)]
            offset += max(size, 0)
            if len(message) != size:
                raise UnityEnvironmentException(
                    f"The message received by the side channel {channel_id} was unexpectedly"
                    " short. Make sure your Unity Environment sending side channel data properly."
                )
            channel = self._side_channels_dict.get(channel_id)
            if channel is None:
                log.warning("Unknown side channel data received. Channel type: %s.", channel_id)
            else:
                channel.on_message_received(IncomingMessage(message))

    def generate_side_channel_messages(self) -> bytearray:
        """Everything that the channels have queued; the queues are empty then."""
        result = bytearray()
        for channel_id, channel in self._side_channels_dict.items():
            for message in channel.message_queue:
                result += channel_id.bytes_le + struct.pack("<i", len(message)) + message
            channel.message_queue = []
        return result


def _head(data: bytes | bytearray, offset: int) -> tuple[uuid.UUID, int]:
    try:
        channel_id = uuid.UUID(bytes_le=bytes(data[offset : offset + _ID]))
        (size,) = struct.unpack_from("<i", data, offset + _ID)
    except (struct.error, ValueError) as error:
        raise UnityEnvironmentException(
            "There was a problem reading a message in a SideChannel. Please make sure the version"
            " of MLAgents in Unity is compatible with the Python version."
        ) from error
    return channel_id, size
