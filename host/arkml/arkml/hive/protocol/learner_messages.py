"""Messages between a server and a learner: JSON objects, each after its length in 4 bytes."""

from __future__ import annotations

import json
import struct
from typing import Any

from arkml.errors import ProtocolError

MAX_MESSAGE = 4 << 20

_LENGTH = struct.Struct("<I")

Message = dict[str, Any]


def pack(kind: str, **fields: Any) -> bytes:
    """Return the bytes of a message."""
    data = json.dumps({"kind": kind, **fields}).encode()
    return _LENGTH.pack(len(data)) + data


class Unpacker:
    """A buffer that splits the bytes of a stream into messages."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Add bytes, and return the messages that they complete. Raises ProtocolError."""
        self._data += data
        messages: list[Message] = []
        while len(self._data) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._data)
            if size > MAX_MESSAGE:
                raise ProtocolError(f"a message of {size} bytes, {MAX_MESSAGE} at most")
            end = _LENGTH.size + size
            if len(self._data) < end:
                break
            message = json.loads(self._data[_LENGTH.size : end])
            if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
                raise ProtocolError(f"a message is an object with a kind, not {message!r}")
            messages.append(message)
            del self._data[:end]
        return messages
