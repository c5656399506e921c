"""Steps of a player: paced, timed, counted."""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass

_clock = time.perf_counter


@dataclass(frozen=True, slots=True)
class Timings:
    """How long each step took, in seconds, in order."""

    steps: array[float]

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def total(self) -> float:
        return math.fsum(self.steps)

    def quantiles(self, *shares: float) -> list[float]:
        """The times that such shares of the steps stay below; zeros if there were none."""
        ordered = sorted(self.steps)
        if not ordered:
            return [0.0 for _ in shares]
        last = len(ordered) - 1
        return [ordered[min(last, math.ceil(share * len(ordered)) - 1)] for share in shares]


class Pacer:
    """
    Waits until the next frame is due.

    A frame that ends after the next one was due is late; the next one starts at once and the
    time that was lost is not made up for.
    """

    def __init__(
        self,
        fps: float,
        *,
        clock: Callable[[], float] = _clock,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.late = 0
        self.fps = fps
        self._clock = clock
        self._sleep = sleep
        self._due = clock()

    def begin(self) -> None:
        """The first frame starts now."""
        self._due = self._clock()

    def wait(self) -> None:
        """Wait after a frame."""
        self._due += 1 / self.fps
        left = self._due - self._clock()
        if left > 0:
            self._sleep(left)
        else:
            self.late += 1
            self._due -= left


class Steps:
    """Runs a step again and again; `timings` holds those that are done, even if one raises."""

    def __init__(self, step: Callable[[], None]) -> None:
        self.timings = Timings(array("d"))
        self._step = step

    def run(
        self,
        count: int,
        *,
        pacer: Pacer | None = None,
        after: Callable[[int], None] | None = None,
    ) -> None:
        """Run `count` steps; `after` is told how many are done."""
        step, seconds = self._step, self.timings.steps
        if pacer is not None:
            pacer.begin()
        for done in range(1, count + 1):
            started = _clock()
            step()
            seconds.append(_clock() - started)
            if pacer is not None:
                pacer.wait()
            if after is not None:
                after(done)
