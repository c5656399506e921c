"""A message that is written."""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence

log = logging.getLogger(__name__)


class OutgoingMessage:
    """Values one after another, little-endian."""

    def __init__(self) -> None:
        self.buffer = bytearray()

    def write_bool(self, b: bool) -> None:
        """One byte."""
        self.buffer += struct.pack("<?", b)

    def write_int32(self, i: int) -> None:
        self.buffer += struct.pack("<i", i)

    def write_float32(self, f: float) -> None:
        self.buffer += struct.pack("<f", f)

    def write_float32_list(self, float_list: Sequence[float]) -> None:
        """How many, and each of them."""
        self.write_int32(len(float_list))
        for number in float_list:
            self.write_float32(number)

    def write_string(self, s: str) -> None:
        """Its length and itself, in ASCII. Raises UnicodeEncodeError."""
        encoded = s.encode("ascii")
        self.write_int32(len(encoded))
        self.buffer += encoded

    def set_raw_bytes(self, buffer: bytes | bytearray) -> None:
        """Take these bytes in place of all that was written."""
        if self.buffer:
            log.warning(
                "Called set_raw_bytes but the message already has been written to. This will"
                " overwrite data."
            )
        self.buffer = bytearray(buffer)
