"""Time and chance of a guest in an environment: both follow from its seed and its calls alone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from arkml.envs.core.submit_loop import Calls
from arkml.errors import UsageError

ORIGIN = 946_684_800_000_000_000
"""Nanoseconds from the Unix epoch to the first of January 2000, when every instance begins."""

FRAME = 1 / 60
"""Seconds of a frame, unless told otherwise."""

_MOST = 1e9  # of whatever says how fast time goes
_LAST = (1 << 63) - 1  # nanoseconds: a guest reads them as an i64


class Pace:
    """
    The speed of the clock of guests in an environment; it counts from the next frame on.

    A frame lasts `frame_seconds` times `time_scale`. Raises UsageError for wrong values.
    """

    def __init__(self, frame_seconds: float = FRAME) -> None:
        self._made_with = _checked("frame_seconds", frame_seconds, least=1 / _MOST)
        self._frame_seconds = self._made_with
        self._time_scale = 1.0

    @property
    def frame_seconds(self) -> float:
        """Seconds of a frame where time is not scaled."""
        return self._frame_seconds

    @property
    def time_scale(self) -> float:
        """The factor by which the clock is faster than that; 0 stops it."""
        return self._time_scale

    @time_scale.setter
    def time_scale(self, scale: float) -> None:
        self._time_scale = _checked("time_scale", scale, least=0)

    @property
    def capture_rate(self) -> float:
        """
        Frames of a second where time is not scaled.

        Set to 0 it is again what the environment was made with.
        """
        return 1 / self._frame_seconds

    @capture_rate.setter
    def capture_rate(self, rate: float) -> None:
        if _checked("capture_rate", rate, least=0):
            self._frame_seconds = 1 / _checked("capture_rate", rate, least=1 / _MOST)
        else:
            self._frame_seconds = self._made_with

    @property
    def nanoseconds(self) -> int:
        """Nanoseconds of the next frame."""
        return round(self._frame_seconds * self._time_scale * 1e9)


class SeededWorld:
    """
    The world of one instance. It begins at `ORIGIN`, whichever the machine's time is.

    The clock stands still while a call runs, unless the guest sleeps: it wakes at once, that much
    later.
    """

    def __init__(self, seed: int, pace: Pace) -> None:
        self._seed = seed
        self._pace = pace
        self._now = ORIGIN
        self._draws = 0

    def tick(self) -> None:
        """Move the clock by a frame."""
        self._now += self._pace.nanoseconds

    def skip(self, nanoseconds: int) -> None:
        """Move the clock by frames that were not counted one by one."""
        self._now += nanoseconds

    def framed(self, calls: Calls) -> Calls:
        """Yield the calls, each a frame after the one before."""
        for begin in calls:
            self.tick()
            yield begin

    def time_of_day(self) -> int:
        return min(self._now, _LAST)

    def reading(self) -> int:
        return self._now

    def wait(self, until: int | None, timeout: float, rest: Callable[[float], object]) -> None:
        if until is None:
            rest(timeout)
        else:
            self._now = max(self._now, until)

    def random(self, size: int) -> bytes:
        self._draws += 1
        return hashlib.shake_128(f"{self._seed} {self._draws}".encode()).digest(size)


def _checked(name: str, number: float, *, least: float) -> float:
    if not isinstance(number, int | float) or not least <= number <= _MOST:
        raise UsageError(f"{name} is {number!r}: a number from {least:g} to {_MOST:g}")
    return float(number)
