"""The pace of a watched guest: limits on frames per second, processor time and bytes per second."""

from __future__ import annotations

import time
from collections.abc import Callable

SHARE = 0.25
"""The share of a core that a player takes at most: a guest that needs more is played slower."""

BYTES_PER_SECOND = 1 << 20
"""Bytes of frames that a player shows in a second: of larger frames fewer are shown."""


class WatchPace:
    """
    Waits between frames, and decides which frames are shown.

    Args:
        rate: The most frames per second.
        clock: Returns seconds; never goes back.
        spent: Returns the seconds of processor time that this process has used.
        sleep: Waits for some seconds.

    """

    def __init__(
        self,
        rate: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.process_time,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._interval = 1.0 / rate
        self._clock, self._spent, self._sleep = clock, spent, sleep
        self._due = clock() + self._interval
        self._used = spent()
        self._shows_at = clock()

    def wait(self, *, is_seen: bool = True) -> None:
        """
        Wait until the next frame is due.

        After a frame that is not seen, wait only as long as the limit on processor time demands.
        """
        used, now = self._spent(), self._clock()
        rest = (used - self._used) * (1.0 / SHARE - 1.0)
        self._used = used
        until = max(self._due if is_seen else now, now + rest)
        if until > now:
            self._sleep(until - now)
        # A frame that was late delays those after it, which are not played faster to catch up.
        self._due = max(until, now) + self._interval

    @property
    def shows(self) -> bool:
        """True if the present frame may be shown."""
        return self._clock() >= self._shows_at

    def note(self, size: int) -> None:
        """Note that a frame of `size` bytes was shown."""
        self._shows_at = max(self._shows_at, self._clock() - 1.0) + size / BYTES_PER_SECOND
