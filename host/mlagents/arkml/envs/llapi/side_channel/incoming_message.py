"""A reader of the values in a player's message, in the order in which they were written."""

from __future__ import annotations

import struct
from typing import Any

from arkml.base.sealed import Sealed
from arkml.base.short_reprs import cut_repr
from arkml.errors import UsageError


class IncomingMessage(Sealed):
    """
    A message from the player, whose values are read one after another.

    Reading past the end returns the default value; an incomplete value raises struct.error. Reading
    begins at byte `offset`. Raises UsageError for a negative one.
    """

    def __init__(self, buffer: bytes | bytearray, offset: int = 0) -> None:
        self.buffer = buffer
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise UsageError(f"offset is {cut_repr(offset)}: it takes a number of bytes, from 0")
        self.offset: int = offset

    def read_bool(self, default_value: bool = False) -> bool:
        return bool(self._read("<?", default_value))

    def read_int32(self, default_value: int = 0) -> int:
        return int(self._read("<i", default_value))

    def read_float32(self, default_value: float = 0.0) -> float:
        return float(self._read("<f", default_value))

    def read_float32_list(self, default_value: list[float] | None = None) -> list[float]:
        """Read the number of floats, then the floats."""
        if self._at_end_of_buffer():
            return [] if default_value is None else default_value
        count = self.read_int32()
        # Floats past the end read as 0.0: a count of billions must not become a list of billions.
        if not 0 <= count * 4 <= len(self.buffer) - self.offset:
            raise struct.error(
                f"a list of {count} floats has {len(self.buffer) - self.offset} bytes"
            )
        return [self.read_float32() for _ in range(count)]

    def read_string(self, default_value: str = "") -> str:
        """Read a size and ASCII text. Raises UnicodeDecodeError for other text."""
        if self._at_end_of_buffer():
            return default_value
        size = self.read_int32()
        if not 0 <= size <= len(self.buffer) - self.offset:
            raise struct.error(f"a text of {size} bytes has {len(self.buffer) - self.offset} bytes")
        text = bytes(self.buffer[self.offset : self.offset + size]).decode("ascii")
        self.offset += size
        return text

    def get_raw_bytes(self) -> bytearray:
        """Return a copy of the whole message."""
        return bytearray(self.buffer)

    def _read(self, layout: str, default: Any) -> Any:
        if self._at_end_of_buffer():
            return default
        (value,) = struct.unpack_from(layout, self.buffer, self.offset)
        self.offset += struct.calcsize(layout)
        return value

    def _at_end_of_buffer(self) -> bool:
        return self.offset >= len(self.buffer)
