"""Steps of a guest's task: counted, paced and timed."""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arkml.training.pacer import Pacer

_clock = time.perf_counter


@dataclass(frozen=True, slots=True)
class Timings:
    """Durations of steps, in seconds and in their order."""

    steps: array[float]

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def total(self) -> float:
        """Sum of the durations."""
        return math.fsum(self.steps)

    def quantiles(self, *shares: float) -> list[float]:
        """Return quantiles of the durations, such as 0.5 and 0.99; zeros without steps."""
        ordered = sorted(self.steps)
        if not ordered:
            return [0.0 for _ in shares]
        last = len(ordered) - 1
        return [ordered[min(last, math.ceil(share * len(ordered)) - 1)] for share in shares]


class Steps:
    """A repeated step; `timings` holds the finished steps, even after one has raised."""

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
        """Run `count` steps, and call `after` with the number of finished ones."""
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
