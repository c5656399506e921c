"""A message that is read."""

from __future__ import annotations

import struct
from typing import Any


class IncomingMessage:
    """
    Values one after another, little-endian, read in the order they were written.

    At the end of the message every value is its default. A value that is cut off raises
    struct.error.
    """

    def __init__(self, buffer: bytes | bytearray, offset: int = 0) -> None:
        self.buffer = buffer
        self.offset = offset

    def read_bool(self, default_value: bool = False) -> bool:
        return default_value if self._at_end_of_buffer() else bool(self._next("<?", 1))

    def read_int32(self, default_value: int = 0) -> int:
        return default_value if self._at_end_of_buffer() else int(self._next("<i", 4))

    def read_float32(self, default_value: float = 0.0) -> float:
        return default_value if self._at_end_of_buffer() else float(self._next("<f", 4))

    def read_float32_list(self, default_value: list[float] | None = None) -> list[float]:
        if self._at_end_of_buffer():
            return [] if default_value is None else default_value
        count = self.read_int32()
        self._require(4 * max(count, 0))
        return [self.read_float32() for _ in range(count)]

    def read_string(self, default_value: str = "") -> str:
        """Raises UnicodeDecodeError for what is not ASCII."""
        if self._at_end_of_buffer():
            return default_value
        size = self.read_int32()
        self._require(max(size, 0))
        text = bytes(self.buffer[self.offset : self.offset + max(size, 0)]).decode("ascii")
        self.offset += max(size, 0)
        return text

    def get_raw_bytes(self) -> bytearray:
        """A copy of the whole message."""
        return bytearray(self.buffer)

    def _next(self, layout: str, size: int) -> Any:
        (value,) = struct.unpack_from(layout, self.buffer, self.offset)
        self.offset += size
        return value

    def _require(self, size: int) -> None:
        """A length in a message promises no more bytes than there are."""
        left = len(self.buffer) - self.offset
        if size > left:
            raise struct.error(f"a message promises {size} bytes and has {left}")

    def _at_end_of_buffer(self) -> bool:
        return self.offset >= len(self.buffer)
