"""What a trace costs a frame, and how large it is."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tests.benchmarks.bench import Bench
from tests.benchmarks.frame import ours
from tests.benchmarks.measuring import Spread
from tests.benchmarks.rows import AtMost, Row
from tests.benchmarks.subjects import ACTIONS, bench_guest

from arkml import Host, Trace

TOPIC = "tracing"
FEATURES, AGENTS = 8, 1
FRAME = 1e6 / 60  # µs
COPIES, FRAMES = 12, 300  # of a minute


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        f"One guest with {AGENTS} agent and {FEATURES} features, one call a frame. The minute has"
        f" {COPIES} copies of its memory, and random actions, which do not compress.",
    )
    bench.say("a trace")
    with tempfile.TemporaryDirectory() as folder:
        with Host() as plain, Host(trace=Path(folder, "frames.trace")) as traced:
            blocks = {
                "plain": ours(bench_guest(plain, AGENTS, FEATURES), bench.block_seconds),
                "traced": ours(bench_guest(traced, AGENTS, FEATURES), bench.block_seconds),
            }
            figures = bench.interleave(blocks)
        both = list(zip(figures["traced"], figures["plain"], strict=True))
        yield Row(
            TOPIC, "a frame with a trace", "µs", Spread.of(figures["traced"]), None,
            "without one", Spread.of(figures["plain"]),
        )  # fmt: skip
        more = [100 * (traced - plain) / FRAME for traced, plain in both]
        yield Row(TOPIC, "more, of a frame at 60 fps", "%", Spread.of(more), AtMost(3.0))
        size = minute(Path(folder, "minute.trace")) / 1e6
        yield Row(TOPIC, "a minute at 60 fps", "MB", Spread.of([size]), AtMost(1.0))


def minute(path: Path) -> int:
    """The bytes of the trace of a minute."""
    random = np.random.default_rng(0)

    def policy(observations: np.ndarray) -> np.ndarray:
        return random.normal(size=(len(observations), ACTIONS)).astype(np.float32)

    with Host(policy=policy, trace=Trace(path, snapshot_seconds=1e6)) as host:
        guest = bench_guest(host, AGENTS, FEATURES)
        for _ in range(COPIES):
            guest.restore(guest.snapshot())  # after which the trace begins anew, with a copy
            for _ in range(FRAMES):
                guest.call("frame")
    return path.stat().st_size
