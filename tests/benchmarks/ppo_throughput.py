"""
Rows a second that PPO learns from: with its host, and alone on a rollout that is full.

By four epochs, as it was measured before many agents had defaults of their own, and by these.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import Companion
from tests.benchmarks.rows import AtLeast, Row, alone
from tests.benchmarks.subjects import ACTIONS
from tests.benchmarks.training_host import TrainingHost

from arkml.hive.protocol.settings import Settings
from arkml.learning.ppo_plan import planned

AGENTS, FEATURES = 1_024, 8
LIMIT, ALONE = AtLeast(150.0), AtLeast(250.0)
FOUR_EPOCHS, DEFAULTS = "four epochs", "by the defaults"
PPO: dict[str, Any] = {"algorithm": "ppo"}
CHANGED = {
    FOUR_EPOCHS: PPO | {"rollout_rows": 32_768, "epochs": 4, "batch_size": 2_048},
    DEFAULTS: PPO,
}


def settings_of(name: str) -> Settings:
    """Return what the settings of this name are for so many agents."""
    settings = Settings(FEATURES, ACTIONS).changed(CHANGED[name])
    return planned(settings, AGENTS)


def rows(bench: Bench, topic: str) -> Iterator[Row]:
    bench.note(
        topic,
        f"PPO: {AGENTS:,} agents of one guest with {FEATURES} features and three actions, networks"
        f" of 64 x 64; {' and '.join(map(_described, CHANGED))};"
        " host, hive and a learner of one thread on two cores, and rows count when they are"
        " learned from. Alone, a learner has the rows in memory; adding and statistics are part.",
    )
    for name in CHANGED:
        bench.say(f"PPO with its host, {name}")
        rates = _with_host(bench, name)
        yield alone(topic, f"rows learned by PPO, {name}", "thousand/s", rates, LIMIT)
    bench.say("PPO alone")
    rounds = 3 if bench.quick else 7
    with Companion("ppo_alone", FOUR_EPOCHS) as four, Companion("ppo_alone", DEFAULTS) as made:
        sides = {FOUR_EPOCHS: four.measure, DEFAULTS: made.measure}
        figures = bench.interleave(sides, rounds=rounds)
    for name, rates in figures.items():
        limit = ALONE if name == DEFAULTS else None
        yield alone(topic, f"rows learned by PPO alone, {name}", "thousand/s", rates, limit)


def _described(name: str) -> str:
    made = settings_of(name)
    return (
        f"{name} ({made.rollout_rows:,} rows a rollout, {made.epochs} epochs, minibatches of"
        f" {made.batch_size:,})"
    )


def _with_host(bench: Bench, name: str) -> list[float]:
    """Return thousands of rows that were learned from in a second, of each block."""
    with TrainingHost(AGENTS, FEATURES, block=True, **CHANGED[name]) as training:
        for _ in range(2):  # the settings follow the number of agents after the first rows
            _updated(training)
        rollouts, blocks = (2, 2) if bench.quick else (10, 5)
        rows = settings_of(name).rollout_rows
        return [_rate(training, rollouts, rows) for _ in range(blocks)]


def _rate(training: TrainingHost, rollouts: int, rows: int) -> float:
    start, before = time.perf_counter(), training.session._loaded_version
    for _ in range(rollouts):
        _updated(training)
    versions = training.session._loaded_version - before
    return versions * rows / (time.perf_counter() - start) / 1e3


def _updated(training: TrainingHost) -> None:
    """Play until a new version acts: one follows on each rollout."""
    session = training.session
    before = session._loaded_version
    while session._loaded_version == before:
        training.train()
