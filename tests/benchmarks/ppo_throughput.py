"""Rows a second that PPO learns from: with its host, and alone on a rollout that is full."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import Companion
from tests.benchmarks.rows import AtLeast, Row, alone
from tests.benchmarks.training_host import TrainingHost

AGENTS, FEATURES = 1_024, 8
ROLLOUT, EPOCHS, BATCH = 32_768, 4, 2_048
LIMIT = AtLeast(150.0)
SETTINGS: dict[str, Any] = {
    "algorithm": "ppo",
    "hidden": 64,
    "rollout_rows": ROLLOUT,
    "epochs": EPOCHS,
    "batch_size": BATCH,
}


def rows(bench: Bench, topic: str) -> Iterator[Row]:
    bench.note(
        topic,
        f"PPO: {AGENTS:,} agents of one guest with {FEATURES} features and three actions, networks"
        f" of 64 x 64, rollouts of {ROLLOUT:,} rows, {EPOCHS} epochs, minibatches of {BATCH:,};"
        " host, hive and a learner of one thread on two cores, and rows count when they are"
        " learned from. Alone, a learner has the rows in memory; adding and statistics are part.",
    )
    bench.say("PPO with its host")
    yield alone(topic, "rows learned by PPO", "thousand/s", _with_host(bench), LIMIT)
    bench.say("PPO alone")
    with Companion("ppo_alone") as learner:
        figures = bench.interleave({"alone": learner.measure}, rounds=3 if bench.quick else 7)
    yield alone(topic, "rows learned by PPO, alone", "thousand/s", figures["alone"])


def _with_host(bench: Bench) -> list[float]:
    """Return thousands of rows that were learned from in a second, of each block."""
    with TrainingHost(AGENTS, FEATURES, block=True, **SETTINGS) as training:
        _updated(training)
        return [_rate(training, 2 if bench.quick else 10) for _ in range(2 if bench.quick else 5)]


def _rate(training: TrainingHost, rollouts: int) -> float:
    start, before = time.perf_counter(), training.session._loaded_version
    for _ in range(rollouts):
        _updated(training)
    versions = training.session._loaded_version - before
    return versions * ROLLOUT / (time.perf_counter() - start) / 1e3


def _updated(training: TrainingHost) -> None:
    """Play until a new version acts: one follows on each rollout."""
    session = training.session
    before = session._loaded_version
    while session._loaded_version == before:
        training.train()
