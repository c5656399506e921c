"""The clocks that a guest reads, and what it takes for time to pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clocks(Protocol):
    """Two clocks in nanoseconds: the time since the Unix epoch, and one that waits go by."""

    def time_of_day(self) -> int: ...

    def reading(self) -> int: ...

    def wait(self, until: int | None, timeout: float, rest: Callable[[float], object]) -> None:
        """
        Let time pass, `until` the clock that waits go by shows so much, if that is given.

        `rest` blocks for the seconds it is given, or less; `timeout` is the most it may be given.
        """


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
