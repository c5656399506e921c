"""The cost of a training guest for its host, and the throughput of its hive."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

from tests.benchmarks import (
    learner_throughput,
    playing,
    ppo_throughput,
    row_throughput,
)
from tests.benchmarks.bench import Bench
from tests.benchmarks.measuring import Block, microseconds
from tests.benchmarks.rows import AtMost, Row, against
from tests.benchmarks.training_host import TrainingHost

TOPIC = "training"
FEATURES = 64
HIDDEN = 64
RATE = 60
PACED = 15  # frames of a block
LIMITS = {1024: AtMost(1.3), 64: AtMost(1.5)}
IDLE = {"memory_max_size": 100_000, "updates_per_row": 1e-6}
"""The learner reads the rows and makes nothing of them."""


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        f"An embedded hive on the same cores, {FEATURES} features, three actions, a submit never"
        f" waits. A frame is one call; its policy has two hidden layers of {HIDDEN} and draws"
        " noise; the learner is idle, and each block ends when the hive has its rows.",
    )
    for agents, limit in LIMITS.items():
        bench.say(f"training frames of {agents} agents")
        yield from _frame(bench, agents, limit)
    yield from playing.rows(bench, TOPIC)
    yield from row_throughput.rows(bench, TOPIC)
    yield from learner_throughput.rows(bench, TOPIC)
    yield from ppo_throughput.rows(bench, TOPIC)


def _frame(bench: Bench, agents: int, limit: AtMost) -> Iterator[Row]:
    with TrainingHost(agents, FEATURES, hidden=HIDDEN, **IDLE) as training:
        training.load(training.snapshot())
        for name, median in (
            (f"a frame of {agents} agents", lambda call: microseconds(call, bench.block_seconds)),
            (f"the same, {RATE} a second", _paced),
        ):
            blocks: dict[str, Block] = {
                "train": lambda median=median: _drained(training, median(training.train)),
                "infer": lambda median=median: median(training.infer),
            }
            figures = bench.interleave(blocks)
            assert not training.session.outbox.dropped, "rows were dropped, which is cheaper"
            train, infer = figures["train"], figures["infer"]
            yield against(TOPIC, name, "µs", train, "inference, same snapshot", infer, limit)


def _drained(training: TrainingHost, figure: float) -> float:
    training.drain()
    return figure


def _paced(frame: Callable[[], None]) -> float:
    """Microseconds of a frame in a game, which has the caches of the cores to itself no more."""
    clock = time.perf_counter
    figures: list[float] = []
    for _ in range(PACED):
        time.sleep(1 / RATE)
        before = clock()
        frame()
        figures.append(clock() - before)
    return statistics.median(figures) * 1e6
