"""Updates a second of a learner on a filled replay buffer, beside stable-baselines3's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import Companion
from tests.benchmarks.measuring import Block, Spread, quotients
from tests.benchmarks.rows import AtLeast, Limit, Row

TOPIC = "updates"
THEIRS = "stable-baselines3 train()"
FEATURES, ACTIONS = 8, 2
ROWS = 50_000
"""Rows in the replay buffer of each side."""


class Size(NamedTuple):
    """Two hidden layers of `hidden` units and a batch; a block takes `seconds` at least."""

    hidden: int
    batch: int
    seconds: float

    @property
    def name(self) -> str:
        return f"{self.hidden} x {self.hidden}, batch {self.batch:,}"


LIMITS: Mapping[Size, Limit] = {
    Size(64, 256, 1.0): AtLeast(6.0),
    Size(256, 256, 1.5): AtLeast(2.7),
    Size(1024, 4_000, 4.0): AtLeast(1.3),
}


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        f"SAC on {ROWS:,} rows of {FEATURES} features and {ACTIONS} actions in memory, each side in"
        " a process of its own with one thread, in turn. Ours draws and gathers the batches and"
        " normalizes them, in turns of the length that a learner makes; theirs draws from its own"
        " replay buffer and normalizes nothing. What is compiled or loaded once is over before.",
    )
    for size, limit in LIMITS.items():
        bench.say(f"updates, {size.name}")
        with companion("ours", size, bench.quick) as ours, companion("sb3", size, bench.quick) as p:
            yield row(bench, size, limit, {"ours": ours.measure, THEIRS: p.measure})


def companion(learner: str, size: Size, quick: bool, **options: str) -> Companion:
    """Start the process of a learner, which answers each `measure` with its updates a second."""
    seconds = size.seconds / 4 if quick else size.seconds
    sizes = (size.hidden, size.batch, FEATURES, ACTIONS, ROWS)
    return Companion(f"updates_{learner}", *sizes, seconds, **options)


def row(bench: Bench, size: Size, limit: Limit, blocks: Mapping[str, Block]) -> Row:
    """Measure ours and the other of `blocks` in turn, and return their row."""
    figures = bench.interleave(blocks, rounds=3 if bench.quick else 9)
    ours, theirs = figures.values()
    _, competitor = figures
    return Row(
        TOPIC, size.name, "/s", Spread.of(ours), limit, competitor, Spread.of(theirs),
        quotients(ours, theirs),
    )  # fmt: skip
