"""A bounds-checked cursor over the bytes of a wasm binary."""

from __future__ import annotations

from arkml.errors import ModuleRejected

_CONTINUES = 0x80
_MAX_NAME = 100_000  # the limit of wasmtime


class Reader:
    """A cursor that reads numbers, names and bytes between `position` and `end`."""

    __slots__ = ("_data", "end", "position", "title")

    def __init__(self, data: bytes, position: int, end: int, title: str) -> None:
        self._data = data
        self.position = position
        self.end = end
        self.title = title

    @property
    def is_empty(self) -> bool:
        return self.position >= self.end

    def rejected(self, reason: str) -> ModuleRejected:
        """Return an error with `reason` and the current position."""
        return ModuleRejected(f"{self.title}: {reason} (at byte {self.position})")

    def byte(self) -> int:
        if self.position >= self.end:
            raise self.rejected("the bytes end too early")
        value = self._data[self.position]
        self.position += 1
        return value

    def u32(self) -> int:
        """Read an unsigned LEB128 number of at most 32 bits."""
        value = self.byte()
        if value < _CONTINUES:
            return value
        return self._unsigned(value & 0x7F, 32)

    def u64(self) -> int:
        """Read an unsigned LEB128 number of at most 64 bits."""
        value = self.byte()
        return value if value < _CONTINUES else self._unsigned(value & 0x7F, 64)

    def s33(self) -> int:
        """Read a signed LEB128 number of at most 33 bits, such as a heap type."""
        return self._signed(33)

    def s32(self) -> int:
        """Read a signed LEB128 number of at most 32 bits."""
        return self._signed(32)

    def s64(self) -> int:
        """Read a signed LEB128 number of at most 64 bits."""
        return self._signed(64)

    def count(self, most: int, items: str) -> int:
        """Read the length of a vector: at most `most` items, each of one byte or more."""
        count = self.u32()
        if count > most:
            raise self.rejected(f"{count:,} {items}, the limit is {most:,}")
        if count > self.end - self.position:
            raise self.rejected(f"{count:,} {items} do not fit into the bytes that follow")
        return count

    def name(self) -> str:
        """Read a UTF-8 text that is preceded by its length."""
        length = self.u32()
        if length > _MAX_NAME:
            raise self.rejected(f"a name of {length:,} bytes")
        start = self.position
        self.skip(length)
        try:
            return self._data[start : self.position].decode()
        except UnicodeDecodeError as error:
            raise self.rejected("a name is not UTF-8") from error

    def skip(self, length: int) -> None:
        if length > self.end - self.position:
            raise self.rejected(f"{length:,} bytes announced, {self.end - self.position:,} left")
        self.position += length

    def part(self, length: int) -> Reader:
        """Return a reader of the next `length` bytes, and skip them in this reader."""
        start = self.position
        self.skip(length)
        return Reader(self._data, start, self.position, self.title)

    def peek(self) -> int:
        """Return the next byte without consuming it."""
        value = self.byte()
        self.position -= 1
        return value

    def _unsigned(self, value: int, bits: int) -> int:
        shift = 7
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if value >> bits or shift > bits + 6:
                raise self.rejected(f"a number does not fit into {bits} bits")
            if byte < _CONTINUES:
                return value

    def _signed(self, bits: int) -> int:
        value, shift = 0, 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > bits + 6:
                raise self.rejected(f"a number does not fit into {bits} bits")
            if byte < _CONTINUES:
                break
        if byte & 0x40:
            value -= 1 << shift
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise self.rejected(f"a number does not fit into {bits} bits")
        return value


def unsigned(value: int) -> bytes:
    r"""Encode `value` as unsigned LEB128: 300, for example, is the bytes `\xac\x02`."""
    encoded = bytearray()
    while value >= _CONTINUES:
        encoded.append(value & 0x7F | _CONTINUES)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def named(name: str) -> bytes:
    """Encode `name` as UTF-8 with its length in front."""
    encoded = name.encode()
    return unsigned(len(encoded)) + encoded
