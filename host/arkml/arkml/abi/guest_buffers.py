"""The interfaces through which a handler fills guest memory, and reads text for display."""

from __future__ import annotations

from typing import Protocol


class OutBuffer(Protocol):
    """A buffer in a guest's memory, valid for one import call."""

    @property
    def length(self) -> int:
        """The number of items that fit into the buffer."""
        ...

    def write(self, data: bytes) -> None:
        """
        Fill the buffer with `data`.

        Raises InvalidArguments, and writes nothing, if the buffer is not inside guest memory or
        is not exactly `len(data)` bytes long.
        """
        ...


class DisplayText(Protocol):
    """Text for display in a guest's memory, valid for one import call; it may not be UTF-8."""

    @property
    def size(self) -> int:
        """The number of bytes of the text."""
        ...

    def read(self, most: int) -> tuple[str, int]:
        """
        Return the first `most` bytes, in whole characters, and the number of bytes left out.

        Bytes that are not UTF-8 are replaced.
        """
        ...
