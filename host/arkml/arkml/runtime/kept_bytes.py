"""Memory that is kept for a guest outside of its instance, for example by an environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

PORTION: Final = 16 << 10
"""Bytes of one portion: small, because fleets have thousands of guests."""

_SPARE = 2 * PORTION  # what stays granted while it is not in use, for the next submit


def no_limit(_size: int) -> None:
    """Accept any number of bytes; used before there is an instance with limits."""


class KeptBytes:
    """
    Counts the bytes of one kind that are kept for one guest, toward `Limits.guest_bytes`.

    Bytes are requested in portions of 16 KiB, because agents come and go with each submit.
    `require` raises GuestMemoryFull if the requested bytes would exceed the guest's limit, and
    `freed` is called when portions are returned. Used by the thread that runs the guest.
    """

    __slots__ = ("_freed", "granted", "require", "used")

    def __init__(
        self,
        freed: Callable[[], object] = lambda: None,
        require: Callable[[int], None] = no_limit,
    ) -> None:
        self.granted = 0
        """Bytes that count: bytes in use, and the unused rest of requested portions."""
        self.used = 0
        """Bytes in use."""
        self.require = require
        self._freed = freed

    def change(self, size: int) -> None:
        """
        Add `size` bytes, or subtract them if `size` is negative.

        Raises GuestMemoryFull, and then nothing is added.
        """
        used = self.used + size
        if used > self.granted:
            granted = _whole_portions(used)
            self.require(granted - self.granted)
            self.granted = granted
        elif self.granted - used > _SPARE or not used:
            self.granted = _whole_portions(used)
            self._freed()
        self.used = used


def _whole_portions(size: int) -> int:
    return -(-size // PORTION) * PORTION
