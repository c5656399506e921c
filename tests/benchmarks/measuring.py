"""Short blocks of several subjects in turn, with what their figures amount to."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Block = Callable[[], float]
"""Runs for a moment and answers one figure."""

_WARM_SHARE = 0.2  # of a block, before its figures count: whoever ran before has the caches

_QUIET = 0.9  # of the control's best rate


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some figures, between their 10th and 90th percentile."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> Spread:
        ordered = sorted(figures)
        last = len(ordered) - 1
        return cls(statistics.median(ordered), ordered[last // 10], ordered[last - last // 10])


def interleave(blocks: Mapping[str, Block], rounds: int) -> dict[str, list[float]]:
    """
    One figure of every block a round.

    Each round turns the order round, so that a machine that gets slower favors nobody.
    """
    figures: dict[str, list[float]] = {name: [] for name in blocks}
    order = list(blocks)
    for _ in range(rounds):
        for name in order:
            figures[name].append(blocks[name]())
        order.reverse()
    return figures


def quotients(over: Sequence[float], under: Sequence[float]) -> Spread:
    """The figures of each round divided by those of the same round."""
    return Spread.of([a / b for a, b in zip(over, under, strict=True)])


def undisturbed(figures: Sequence[float], turns: Sequence[float]) -> list[float]:
    """
    The figures of the rounds in which a control was about as fast as it can be.

    All of them if these are too few to tell: see `enough`.
    """
    found = _quiet(figures, turns)
    return found if enough(figures, turns) else list(figures)


def enough(figures: Sequence[float], turns: Sequence[float]) -> bool:
    """Whether a third of the rounds, and two of them, were undisturbed."""
    return len(_quiet(figures, turns)) >= max(2, len(figures) // 3)


def _quiet(figures: Sequence[float], turns: Sequence[float]) -> list[float]:
    least = max(turns) * _QUIET
    return [figure for figure, rate in zip(figures, turns, strict=True) if rate >= least]


def microseconds(call: Callable[[], object], seconds: float) -> float:
    """The median of one call, over at least five and as many as fit into `seconds`."""
    clock = time.perf_counter
    warm = clock() + seconds * _WARM_SHARE
    while clock() < warm:
        call()
    end = warm + seconds
    figures: list[float] = []
    while len(figures) < 5 or clock() < end:
        before = clock()
        call()
        figures.append(clock() - before)
    return statistics.median(figures) * 1e6


def mean_microseconds(call: Callable[[], object], calls: int) -> float:
    """
    The mean of as many calls in a row, after a fifth as many that do not count.

    What happens once in a while, as the end of an episode, has its share of it.
    """
    for _ in range(calls // 5):
        call()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls * 1e6
