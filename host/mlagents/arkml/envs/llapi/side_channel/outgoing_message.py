"""A writer of the values in a message to a player, little-endian."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from arkml.base.loggers import SafeLogger
from arkml.base.sealed import Sealed

logger = SafeLogger(__name__)


class OutgoingMessage(Sealed):
    """A message to the player, to which values are appended."""

    def __init__(self) -> None:
        self.buffer: bytearray = bytearray()

    def write_bool(self, b: bool) -> None:
        self.buffer += struct.pack("<?", b)

    def write_int32(self, i: int) -> None:
        self.buffer += struct.pack("<i", i)

    def write_float32(self, f: float) -> None:
        """Append a float, rounded to 32 bits."""
        self.buffer += struct.pack("<f", f)

    def write_float32_list(self, float_list: Sequence[float]) -> None:
        """Append the number of floats, then the floats."""
        self.buffer += struct.pack(f"<i{len(float_list)}f", len(float_list), *float_list)

    def write_string(self, s: str) -> None:
        """Append the number of bytes, then the text. Raises UnicodeEncodeError beyond ASCII."""
        encoded = s.encode("ascii")
        self.write_int32(len(encoded))
        self.buffer += encoded

    def set_raw_bytes(self, buffer: bytes | bytearray) -> None:
        """Replace the whole message by a copy of `buffer`."""
        if self.buffer:
            logger.warning(
                "Called set_raw_bytes but the message already has been written to. "
                "This will overwrite data."
            )
        self.buffer = bytearray(buffer)
