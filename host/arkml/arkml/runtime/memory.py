"""Checked access to guest memory."""

from __future__ import annotations

import codecs
import ctypes
import re
from collections.abc import Callable
from typing import Any, SupportsIndex, TypeAlias

from arkml.base.short_reprs import cut_repr
from arkml.errors import InvalidArguments, TextTooLong, TooManyBytes
from arkml.limits import Limits, whole_number

PAGE = 65_536
_FIRST_TEXT = 256  # bytes in which the end of a text is looked for first
BytesLike: TypeAlias = bytes | bytearray | memoryview
_U32 = 0xFFFF_FFFF
_LEAST_I32 = -(1 << 31)
_FIELD_NAMES = re.compile(":[^:]*:")  # in the format of a buffer
_ADDRESSES = re.compile("[OPXz&]|Z(?![fdg])")  # likewise: references, pointers; Zf is complex


def address_of(pointer: SupportsIndex) -> int:
    """
    Return the unsigned address that a guest's i32 stands for; calls return it as signed.

    For -16, for example, it is 4_294_967_280. Raises InvalidArguments for a value that is not an
    integer of 32 bits.
    """
    address = _whole(pointer, "address")
    if not _LEAST_I32 <= address <= _U32:
        raise InvalidArguments(f"the address {cut_repr(address)} does not fit 32 bits")
    return address & _U32


def size_of(size: SupportsIndex) -> int:
    """
    Return a number of bytes as an int. Raises InvalidArguments unless it is a whole number from 0.
    """
    count = _whole(size, "number of bytes")
    if count < 0:
        raise InvalidArguments(f"the number of bytes is {cut_repr(count)}: 0 at least")
    return count


def bytes_of(data: BytesLike) -> bytes:
    """
    Return the bytes of an object with a buffer, such as a bytearray. Raises InvalidArguments.

    Arrays of object references or pointers are refused, because their bytes are addresses of the
    host.
    """
    if isinstance(data, bytes):
        return data
    try:
        view = memoryview(data)
    except (TypeError, ValueError):
        raise InvalidArguments(
            f"a {type(data).__name__} is not bytes: encode a text, pack a number"
        ) from None
    if _ADDRESSES.search(_FIELD_NAMES.sub("", view.format)):
        raise InvalidArguments(
            f"the bytes of this {type(data).__name__} (format {view.format!r}) are addresses of the"
            " host: give numbers, of a dtype that is not object"
        )
    return view.tobytes()


def _whole(value: SupportsIndex, what: str) -> int:
    number = whole_number(value)
    if number is None:
        raise InvalidArguments(f"the {what} is {cut_repr(value)}, not an integer")
    return number


class GuestMemory:
    """
    A guest's linear memory while the guest is suspended.

    `pages` is set from the control block before a handler runs. Pointers and lengths are unsigned.
    A pointer of length 0 is ignored, because an empty Rust slice has a dangling one. A read is
    checked against `limits` before a byte of it is copied.
    """

    __slots__ = ("_base", "_limits", "pages")

    def __init__(self, base: int, limits: Limits) -> None:
        self._base = base
        self._limits = limits
        self.pages = 0

    def move(self, base: int) -> None:
        """Refer to the memory that begins at another address."""
        self._base = base

    def check(self, pointer: int, size: int) -> None:
        """Raise InvalidArguments unless `size` bytes at `pointer` lie in the memory."""
        if pointer < 0 or size < 0:  # it would be an address of the host
            raise InvalidArguments(f"{size} bytes at {pointer} are not in a guest's memory")
        if size and pointer + size > self.pages * PAGE:
            raise InvalidArguments(
                f"{cut_repr(size)} bytes at {pointer:#x} end outside a memory of"
                f" {self.pages * PAGE} bytes"
            )

    def read(self, pointer: int, size: int) -> bytes:
        """Return a copy of `size` bytes. Raises InvalidArguments and TooManyBytes."""
        self.check(pointer, size)
        if size > self._limits.snapshot_bytes:
            raise TooManyBytes(
                f"{size} bytes in one call are over the limit of {self._limits.snapshot_bytes}"
            )
        return ctypes.string_at(self._base + pointer, size) if size else b""

    def text(self, pointer: int, size: int) -> str:
        """Return UTF-8 text of `size` bytes. Raises InvalidArguments and TextTooLong."""
        self.check(pointer, size)
        if size > self._limits.text_bytes:
            raise TextTooLong(
                f"a text of {size} bytes is over the limit of {self._limits.text_bytes}"
            )
        try:
            return self.read(pointer, size).decode()
        except UnicodeDecodeError as error:
            raise InvalidArguments(f"text is not UTF-8 at byte {error.start}") from None

    def c_string(self, pointer: int) -> bytes:
        """
        Return the bytes before the next NUL, as in C. Raises InvalidArguments and TextTooLong.
        """
        self.check(pointer, 1)
        most, size = self.pages * PAGE - pointer, _FIRST_TEXT
        while True:
            size = min(size, most, self._limits.text_bytes + 1)
            found = ctypes.string_at(self._base + pointer, size)
            if (end := found.find(0)) >= 0:
                return found[:end]
            if size > self._limits.text_bytes:
                raise TextTooLong(
                    f"a text at {pointer} is over the limit of {self._limits.text_bytes} bytes"
                )
            if size == most:
                raise InvalidArguments(f"a text at {pointer} has no end: the memory ends before it")
            size *= 8

    def display_text(self, pointer: int, size: int) -> GuestText:
        """Return a text of `size` bytes that is read only when needed. Raises InvalidArguments."""
        self.check(pointer, size)
        return GuestText(self, pointer, size, self._limits.text_bytes)

    def whole(self) -> Any:
        """Return the whole memory in its present size, as a ctypes array of uint8."""
        return (ctypes.c_uint8 * (self.pages * PAGE)).from_address(self._base)

    def write(self, pointer: int, data: bytes) -> None:
        """Write `data`, or raise InvalidArguments and write nothing."""
        self.check(pointer, len(data))
        if data:
            ctypes.memmove(self._base + pointer, data, len(data))

    def assembly_script_text(self, pointer: int) -> str:
        """
        Return the AssemblyScript string at `pointer`, up to `Limits.log_bytes`.

        It is empty for null and for an address outside of the memory.
        """
        try:
            size = int.from_bytes(self.read(pointer - 4, 4), "little") if pointer >= 4 else 0
            self.check(pointer, size)
            kept = min(size, self._limits.log_bytes, self._limits.text_bytes)
            return self.read(pointer, kept).decode("utf-16-le", "replace")
        except InvalidArguments:
            return ""


class WatchedMemory(GuestMemory):
    """A guest's memory that reports to a recorder each write of the host."""

    __slots__ = ("_wrote",)

    def __init__(self, limits: Limits, wrote: Callable[[int, bytes], object]) -> None:
        super().__init__(0, limits)
        self._wrote = wrote

    def write(self, pointer: int, data: bytes) -> None:
        """Write as `GuestMemory` does, and report the bytes."""
        super().write(pointer, data)
        if data:
            self._wrote(pointer, data)


class GuestText:
    """A text in guest memory for display, read only when it is needed."""

    __slots__ = ("_limit", "_memory", "_pointer", "size")

    def __init__(self, memory: GuestMemory, pointer: int, size: int, limit: int) -> None:
        self._memory = memory
        self._pointer = pointer
        self._limit = limit
        self.size = size

    def read(self, most: int) -> tuple[str, int]:
        """
        Return the first `most` bytes as text, at most `Limits.text_bytes`, and the number left out.

        A character cut in two is dropped; bytes that are not UTF-8 are replaced.
        """
        kept = min(self.size, most, self._limit)
        data = self._memory.read(self._pointer, kept)
        text, used = codecs.utf_8_decode(data, "replace", kept == self.size)
        return text, self.size - used


class GuestBuffer:
    """A buffer in guest memory for exactly `length` items, written at most once."""

    __slots__ = ("_memory", "_pointer", "_size", "length")

    def __init__(self, memory: GuestMemory, pointer: int, length: int, item_size: int) -> None:
        self._memory = memory
        self._pointer = pointer
        self._size = length * item_size
        self.length = length

    def write(self, data: bytes) -> None:
        """Fill the buffer, or raise InvalidArguments and write nothing."""
        if len(data) != self._size:
            raise InvalidArguments(f"a buffer of {self._size} bytes for {len(data)} bytes")
        self._memory.write(self._pointer, data)
