"""The interface through which a handler fills guest memory."""

from __future__ import annotations

from typing import Protocol


class OutBuffer(Protocol):
    """A buffer in a guest's memory, valid for one import call."""

    @property
    def length(self) -> int:
        """Number of items that fit."""
        ...

    def write(self, data: bytes) -> None:
        """
        Fill the buffer with `data`.

        Raises InvalidArguments, and writes nothing, if the buffer is not inside guest memory or
        is not exactly `len(data)` bytes long.
        """
        ...
