"""The memory of one guest's brains (loaded models of `ark-ml-inference-v0`) beside their models."""

from __future__ import annotations

from collections.abc import Callable

from arkml.errors import TooManyRows

PORTION = 64 << 10
"""Bytes of one portion: a page of the guest's own memory."""

_SPARE = 2 * PORTION  # what stays granted while it is not in use, for the next frame


class BrainMemory:
    """
    The bytes of observations and results that the brains of one guest hold.

    These bytes count toward `Limits.guest_bytes`. `require` raises GuestMemoryFull if the requested
    bytes would exceed that limit; it is called for portions of 64 KiB, because a call for every
    observation would make frames slower. The observations of all brains together may have at most
    `most_observations` bytes. Used by the thread that runs the guest; any thread may read.
    """

    __slots__ = ("_most_observations", "_observations", "_require", "_used", "granted")

    def __init__(self, require: Callable[[int], None], *, most_observations: int) -> None:
        self.granted = 0
        """Bytes that count: bytes in use, and the unused rest of requested portions."""
        self._require = require
        self._most_observations = most_observations
        self._observations = 0
        self._used = 0

    def take_observations(self, size: int) -> None:
        """Reserve `size` bytes for observations. Raises TooManyRows and GuestMemoryFull."""
        total = self._observations + size
        if total > self._most_observations:
            raise TooManyRows(
                f"the observations of all brains take {total} bytes,"
                f" the limit is {self._most_observations}"
            )
        self.take(size)
        self._observations = total

    def give_back_observations(self, size: int) -> None:
        """Release `size` bytes of observations."""
        self._observations -= size
        self.give_back(size)

    def take(self, size: int) -> None:
        """Reserve `size` bytes, or raise GuestMemoryFull and reserve none."""
        used = self._used + size
        if used > self.granted:
            granted = _whole_portions(used)
            self._require(granted - self.granted)
            self.granted = granted
        self._used = used

    def exchange(self, observations: int, results: int) -> None:
        """
        Release `observations` bytes of observations, and reserve `results` bytes for results.

        Raises GuestMemoryFull if there is no room for the results; none are reserved then.
        """
        self._observations -= observations
        self._used -= observations
        try:
            self.take(results)
        finally:
            self.give_back(0)

    def give_back(self, size: int) -> None:
        """Release `size` bytes, and portions that are no longer needed."""
        self._used -= size
        if not self._used or self.granted - self._used > _SPARE:
            self.granted = _whole_portions(self._used)


def _whole_portions(size: int) -> int:
    return -(-size // PORTION) * PORTION
