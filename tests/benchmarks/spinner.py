"""Work that needs a whole core, in a process of its own: a control of how many cores are free."""

from __future__ import annotations

import sys
import time

from tests.benchmarks.companion import serve


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
