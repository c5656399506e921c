"""The clocks of a guest, which may be other than the machine's."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clocks(Protocol):
    """Two clocks in nanoseconds: the time of day, and a monotonic clock for waits of guests."""

    def time_of_day(self) -> int:
        """Return the time since the Unix epoch."""
        ...

    def reading(self) -> int:
        """Return the reading of the monotonic clock."""
        ...

    def wait(self, until: int | None, timeout: float, rest: Callable[[float], object]) -> None:
        """
        Let time pass until the monotonic clock reads `until`, if that is not None.

        `rest(seconds)` blocks for at most that time; it is called with at most `timeout` seconds.
        """
        ...

    def earliest(self, until: int) -> float:
        """Return the `time.monotonic` time before which the clock cannot read `until`."""
        ...


class MachineClocks:
    """The machine's own clocks."""

    def time_of_day(self) -> int:
        return time.time_ns()

    def reading(self) -> int:
        return time.monotonic_ns()

    def wait(self, until: int | None, timeout: float, rest: Callable[[float], object]) -> None:
        if until is not None:
            timeout = max(0.0, min(timeout, (until - time.monotonic_ns()) / 1e9))
        rest(timeout)

    def earliest(self, until: int) -> float:
        return until / 1e9
