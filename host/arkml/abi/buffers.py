"""What a handler sees of guest memory that it fills."""

from __future__ import annotations

from typing import Protocol


class OutBuffer(Protocol):
    """Room in a guest's memory, lent for one import call."""

    @property
    def length(self) -> int:
        """How many items the guest made room for."""
        ...

    def write(self, data: bytes) -> None:
        """
        Fill the room.

        Raises InvalidArguments, with nothing written, if the room is not inside guest memory or
        is not exactly `len(data)` bytes.
        """
        ...
