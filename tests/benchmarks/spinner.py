"""Work that needs a whole core: a control of whether one is free, or two."""

from __future__ import annotations

import sys
import time

from tests.benchmarks.companion import serve

CONTROL_SECONDS = 0.04


def control() -> float:
    """How fast this process works now."""
    return work(CONTROL_SECONDS)


def work(seconds: float) -> float:
    """How many turns a loop makes in a second."""
    start, turns = time.perf_counter(), 0
    while (now := time.perf_counter()) < start + seconds:
        for _ in range(100):
            turns += 1
    return turns / (now - start)


if __name__ == "__main__":
    duration = float(sys.argv[1])
    serve(lambda: work(duration))
