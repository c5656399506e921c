"""Turns of updates as a learner's loop makes them, without the loop."""

from __future__ import annotations

import time

from arkml.learning.algorithm import Algorithm

_ENDLESS = 1 << 30  # updates due
_FIRST = 12  # turns until their length is settled


def warm_up(algorithm: Algorithm) -> None:
    """Wait for what is compiled, and make the turns by which the length of others is found."""
    for _ in range(_FIRST):
        turn(algorithm)


def turn(algorithm: Algorithm) -> int:
    """Make the updates of a turn and return their number."""
    count = algorithm.pace.turn(_ENDLESS)
    began = time.monotonic()
    algorithm.train(count)
    algorithm.pace.record(count, time.monotonic() - began)
    return count


def rate(algorithm: Algorithm, seconds: float) -> float:
    """Return updates a second."""
    made, start = 0, time.perf_counter()
    while (now := time.perf_counter()) < start + seconds:
        made += turn(algorithm)
    return made / (now - start)
