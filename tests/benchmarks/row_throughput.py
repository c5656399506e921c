"""Rows that a hive takes from one host."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks.bench import Bench
from tests.benchmarks.rows import AtLeast, Limit, Row, alone
from tests.benchmarks.training_host import TrainingHost

AGENTS, FEATURES = 1024, 64
AHEAD = 65_536  # rows that wait at most; a host that runs away from its hive drops some
LIMITS: Mapping[str, tuple[Mapping[str, Any], Limit]] = {
    "the learner waits": (
        {"memory_max_size": 100_000, "updates_per_row": 1e-6},
        AtLeast(300.0),
    ),
    "it trains": ({"memory_max_size": 1_000_000, "memory_min_size": 1_000}, AtLeast(150.0)),
}


def rows(bench: Bench, topic: str) -> Iterator[Row]:
    bench.note(
        topic,
        f"Rows: {AGENTS} agents flat out, as fast as the hive acknowledges; what a second of them"
        " writes to disk, by the server's account in /proc.",
    )
    for name, (settings, limit) in LIMITS.items():
        bench.say(f"rows while {name}")
        with TrainingHost(AGENTS, FEATURES, hidden=64, **settings) as training:
            _send(training, 0.5)
            found = [
                _send(training, 0.5 if bench.quick else 1.0) for _ in range(4 if bench.quick else 8)
            ]
            assert not training.session.outbox.dropped, "rows were dropped"
        rates, written = zip(*found, strict=True)
        yield alone(topic, f"rows while {name}", "thousand/s", rates, limit)
        yield alone(topic, f"to disk while {name}", "MB/s", written)


def _send(training: TrainingHost, seconds: float) -> tuple[float, float]:
    """Thousands of rows that were acknowledged in a second, and MB that were written."""
    ledger = training.session.ledger
    start, before, disk = time.perf_counter(), ledger.accepted, _written(training.server)
    while (now := time.perf_counter()) < start + seconds:
        if training.waiting < AHEAD:
            training.train()
        else:
            time.sleep(0.001)
    accepted = ledger.accepted - before
    return accepted / (now - start) / 1e3, (_written(training.server) - disk) / (now - start) / 1e6


def _written(process: int) -> int:
    """Bytes that a process gave the storage to write."""
    for line in Path(f"/proc/{process}/io").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "write_bytes":
            return int(value)
    raise LookupError(process)
