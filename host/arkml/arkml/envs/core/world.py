"""Virtual clocks and random numbers of a guest, determined by its seed and its calls."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from arkml.base.sealed import Sealed
from arkml.base.short_reprs import cut_repr
from arkml.errors import UsageError
from arkml.limits import real_number
from arkml.runtime.exported_function import ExportedFunction

Calls = Iterator[Callable[[], ExportedFunction]]
"""The calls of an instance, in order; each item begins one."""

ORIGIN = 946_684_800_000_000_000
"""Nanoseconds from the Unix epoch to January 1, 2000, the time at which every instance starts."""

FRAME = 1 / 60
"""Seconds of a frame by default."""

_MOST = 1e9  # of frame_seconds, time_scale and capture_rate
_U32 = 0xFFFF_FFFF
_LAST = (1 << 63) - 1  # nanoseconds: a guest reads them as an i64


def frames_between(before: int, now: int) -> int:
    """
    Return how many frames ended between two readings of a guest's u32 count, which wraps around.
    """
    return (now - before) & _U32


class Pace(Sealed):
    """
    The speed of the clock of guests in an environment; changes apply from the next frame.

    A frame lasts `frame_seconds` times `time_scale`. Raises UsageError for wrong values.

    Attributes:
        nanoseconds: Nanoseconds of the next frame, which follow from these. Read-only.

    """

    _is_read_only = True
    nanoseconds: int

    def __init__(self, frame_seconds: float = FRAME) -> None:
        self._made_with = _checked("frame_seconds", frame_seconds, least=1 / _MOST)
        self._frame_seconds = self._made_with
        self._time_scale = 1.0
        self._round()

    @property
    def frame_seconds(self) -> float:
        """Seconds of a frame before `time_scale` is applied."""
        return self._frame_seconds

    @property
    def time_scale(self) -> float:
        """The factor by which frames are longer than `frame_seconds`; 0 stops the clock."""
        return self._time_scale

    @time_scale.setter
    def time_scale(self, scale: float) -> None:
        self._time_scale = _checked("time_scale", scale, least=0)
        self._round()

    @property
    def capture_rate(self) -> float:
        """
        Frames per second before `time_scale` is applied.

        Setting it to 0 restores the `frame_seconds` that the environment was made with.
        """
        return 1 / self._frame_seconds

    @capture_rate.setter
    def capture_rate(self, rate: float) -> None:
        if _checked("capture_rate", rate, least=0):
            self._frame_seconds = 1 / _checked("capture_rate", rate, least=1 / _MOST)
        else:
            self._frame_seconds = self._made_with
        self._round()

    def _round(self) -> None:
        """Set `nanoseconds`, an attribute, since a property would be called twice in each step."""
        self.__dict__["nanoseconds"] = round(self._frame_seconds * self._time_scale * 1e9)


class FrameTime(Protocol):
    """The source of the length of the next frame, in nanoseconds."""

    @property
    def nanoseconds(self) -> int: ...


class SteadyPace(NamedTuple):
    """A constant pace: all frames have the same length."""

    nanoseconds: int


class SavedWorld(NamedTuple):
    """
    A copy of the clock and of the state of the random numbers of an instance.

    Attributes:
        now: The clock, in nanoseconds.
        draws: How often random bytes were drawn.
        uncounted: Ended frames by which the clock has not advanced yet.

    """

    now: int
    draws: int
    uncounted: int


class SeededWorld:
    """
    Clock and random numbers of one instance. The clock starts at `ORIGIN`.

    The clock stands still during a call. A guest that sleeps wakes at once, and the clock moves by
    the time that it asked for.
    """

    def __init__(self, seed: int, pace: FrameTime) -> None:
        self._seed = seed
        self.pace: FrameTime = pace
        """The time of its frames."""
        self._now = ORIGIN
        self._draws = 0
        self._words: Sequence[int] = (0,)  # with the number of frames that have ended: none
        self._frames = self._counted = 0

    def follow(self, words: Sequence[int], frames: int) -> None:
        """
        Count the frames that end in the shim's loop, where a frame begins as the previous one ends.

        `frames` is the index, in `words`, of the u32 count of ended frames.
        """
        self._words, self._frames, self._counted = words, frames, words[frames]

    def settle(self) -> None:
        """Advance the clock by the frames that the guest ran ahead in the shim's loop."""
        frames = self._words[self._frames]
        if frames != self._counted:
            self._now += ((frames - self._counted) & _U32) * self.pace.nanoseconds
            self._counted = frames

    def tick(self) -> None:
        """Advance the clock by one frame, or by more if the shim's loop has counted more."""
        self._now += max(1, self._uncounted()) * self.pace.nanoseconds

    def skip(self, nanoseconds: int) -> None:
        """Advance the clock by `nanoseconds`, the time of frames that were counted elsewhere."""
        self._uncounted()
        self._now += nanoseconds

    def framed(self, calls: Calls) -> Calls:
        """Yield calls, each after advancing the clock by a frame."""
        for begin in calls:
            self.tick()
            yield begin

    def save(self) -> SavedWorld:
        """Return a copy of the clock and of the position in the random numbers."""
        uncounted = frames_between(self._counted, self._words[self._frames])
        return SavedWorld(self._now, self._draws, uncounted)

    def load(self, saved: SavedWorld) -> None:
        """Restore a saved clock and position in the random numbers, for the same seed."""
        self._now, self._draws, uncounted = saved
        self._counted = (self._words[self._frames] - uncounted) & _U32

    def time_of_day(self) -> int:
        """Return nanoseconds since the Unix epoch."""
        self.settle()
        return min(self._now, _LAST)

    def reading(self) -> int:
        """Return the monotonic clock, in nanoseconds."""
        self.settle()
        return self._now

    def wait(self, until: int | None, timeout: float, rest: Callable[[float], object]) -> None:
        """
        Advance the clock to `until`; if that is None, rest for `timeout` seconds of real time.
        """
        if until is None:
            rest(timeout)
        else:
            self.settle()
            self._now = max(self._now, until)

    def earliest(self, until: int) -> float:
        """Return 0.0, because a wait for any reading of this clock ends at once."""
        del until
        return 0.0

    def _uncounted(self) -> int:
        """Return the number of frames that have ended in the loop since the last call."""
        before, self._counted = self._counted, self._words[self._frames]
        return frames_between(before, self._counted)

    def random(self, size: int) -> bytes:
        """Return the next `size` pseudo-random bytes, determined by the seed."""
        self._draws += 1
        return hashlib.shake_128(f"{self._seed} {self._draws}".encode()).digest(size)


def _checked(name: str, number: float, *, least: float) -> float:
    real = real_number(number)
    if real is None or not least <= real <= _MOST:
        raise UsageError(f"{name} is {cut_repr(number)}: a number from {least:g} to {_MOST:g}")
    return float(real)
