"""Updates of a learner while a host plays, beside a bare loop of `train()`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import Companion
from tests.benchmarks.measuring import Spread, quotients
from tests.benchmarks.playing import AGENTS, FEATURES, HIDDEN, play
from tests.benchmarks.rows import AtLeast, Row
from tests.benchmarks.training_host import PATIENCE, TrainingHost
from tests.children import children_of

LIMIT = AtLeast(0.9)
ROWS = 20_000  # in the memory before anything is measured


def rows(bench: Bench, topic: str) -> Iterator[Row]:
    bench.say("updates while a host plays")
    seconds = 2.0 if bench.quick else 4.0
    bench.note(
        topic,
        f"Updates: {AGENTS} agents at 60 frames a second, hidden layers of {HIDDEN}, batches of"
        " 256, one thread. The bare loop has the same rows in a replay buffer of its own and calls"
        " the same train(), in turns of the same length; the learner stands still meanwhile.",
    )
    with TrainingHost(AGENTS, FEATURES, hidden=HIDDEN, memory_min_size=1_000) as training:
        while training.session.ledger.accepted < ROWS:
            play(training.train, 30)
            for _ in range(60):
                training.train()
            training.drain()
        audit = training.client.memory(training.session.run_id).result()
        segment, offset = audit.cursor
        bare = Companion("bare_training", training.directory, segment, offset, seconds)
        with bare:
            blocks = {
                "ours": lambda: _updates(training, seconds),
                "bare": lambda: _alone(training, bare),
            }
            figures = bench.interleave(blocks, rounds=3 if bench.quick else 7)
    yield Row(
        topic,
        "updates while a host plays",
        "/s",
        Spread.of(figures["ours"]),
        LIMIT,
        "train() in a bare loop",
        Spread.of(figures["bare"]),
        quotients(figures["ours"], figures["bare"]),
    )


def _updates(training: TrainingHost, seconds: float) -> float:
    """Return updates a second, counted from one message of the learner to another."""
    start, before = _updates_reported(training)
    play(training.train, int(60 * seconds))
    end, after = _updates_reported(training)
    return (after - before) / (end - start)


def _updates_reported(training: TrainingHost) -> tuple[float, int]:
    """Play until the learner reports more updates; return when it did, and their number."""
    before = after = training.n_opts
    end = time.monotonic() + PATIENCE
    while after == before:
        if time.monotonic() > end:
            raise TimeoutError("the learner that is measured makes no updates")
        play(training.train, 6)
        after = training.n_opts
    return time.perf_counter(), after


def _alone(training: TrainingHost, bare: Companion) -> float:
    with _stopped(children_of(training.server)):
        return bare.measure()


@contextmanager
def _stopped(processes: list[int]) -> Iterator[None]:
    try:
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)
