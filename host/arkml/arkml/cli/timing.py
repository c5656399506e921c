"""Timed steps of a guest's task, which may be paced."""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arkml.training.pacer import Pacer

_clock = time.perf_counter

# Durations of steps that are kept for quantiles: 8 MiB.
_MOST_KEPT = 1 << 20


class Timings:
    """
    Durations of steps, in seconds.

    In a long run only an even sample is kept, every second, fourth, eighth duration and so on, so
    that a run of days takes no more memory than one of hours. Number, sum, shortest and longest
    cover all steps.
    """

    __slots__ = ("_count", "_every", "_kept", "longest", "shortest", "total")

    def __init__(self, seconds: Iterable[float] = ()) -> None:
        self.total = 0.0
        self.shortest = math.inf
        self.longest = 0.0
        self._count = 0
        self._every = 1
        self._kept = array("d")
        for duration in seconds:
            self.add(duration)

    def __len__(self) -> int:
        return self._count

    def add(self, seconds: float) -> None:
        """Add the duration of one more step."""
        if self._count % self._every == 0:
            self._kept.append(seconds)
            if len(self._kept) == _MOST_KEPT:
                self._kept = self._kept[::2]
                self._every *= 2
        self._count += 1
        self.total += seconds
        self.shortest = min(self.shortest, seconds)
        self.longest = max(self.longest, seconds)

    def quantiles(self, *shares: float) -> list[float]:
        """
        Return quantiles of the durations, given shares such as 0.5 and 0.99; zeros without steps.
        """
        ordered = sorted(self._kept)
        if not ordered:
            return [0.0 for _ in shares]
        last = len(ordered) - 1
        return [ordered[min(last, math.ceil(share * len(ordered)) - 1)] for share in shares]


class Steps:
    """
    A step that is repeated and timed; `timings` has all finished steps, even after an exception.
    """

    def __init__(self, step: Callable[[], None]) -> None:
        self.timings = Timings()
        self._step = step

    def run(
        self,
        count: int,
        *,
        pacer: Pacer | None = None,
        after: Callable[[int], None] | None = None,
    ) -> None:
        """Make `count` steps, calling `after` with the number of finished steps after each."""
        step, add = self._step, self.timings.add
        if pacer is not None:
            pacer.begin()
        for done in range(1, count + 1):
            started = _clock()
            step()
            add(_clock() - started)
            if pacer is not None:
                pacer.wait()
            if after is not None:
                after(done)
