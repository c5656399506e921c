"""Sixty frames a second while a learner learns and its policies arrive."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.benchmarks.bench import Bench
from tests.benchmarks.measuring import Spread
from tests.benchmarks.rows import AtMost, Row, alone
from tests.benchmarks.training_host import TrainingHost

AGENTS, FEATURES, HIDDEN = 64, 64, 256
FRAME = 1 / 60
FRAMES = 3_600
TOLERATED = 1.0  # ms that the slowest frames may take longer
BUSY = AtMost(10.0)
_CLIENT = ("arkml-hive", "arkml-loader")  # what the threads are called


@dataclass(frozen=True, slots=True)
class Played:
    """
    milliseconds: of each frame, from when it was due to when it was over. late: how many ended
    after the next one was due. cpu: seconds of a core that the threads of the hive took. seconds:
    in all.
    """

    milliseconds: list[float]
    late: int
    cpu: float
    seconds: float

    def slowest(self) -> float:
        """The 99th percentile."""
        return sorted(self.milliseconds)[len(self.milliseconds) * 99 // 100]


def play(frame: Callable[[], object], frames: int) -> Played:
    """Run so many frames, each when it is due."""
    milliseconds: list[float] = []
    late = 0
    cpu = client_seconds()
    start = due = time.perf_counter()
    for _ in range(frames):
        time.sleep(max(0.0, due - time.perf_counter()))
        frame()
        over = time.perf_counter()
        milliseconds.append((over - due) * 1e3)
        late += over > due + FRAME
        due = max(due + FRAME, over)  # what was missed is not made up for
    return Played(milliseconds, late, client_seconds() - cpu, time.perf_counter() - start)


def client_seconds() -> float:
    """What the threads that look after hives have taken of a core."""
    return sum(
        time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
        for thread in threading.enumerate()
        if thread.name.startswith(_CLIENT) and thread.ident is not None
    )


def rows(bench: Bench, topic: str) -> Iterator[Row]:
    frames = FRAMES // 12 if bench.quick else FRAMES
    bench.say(f"{frames} frames a guest that learns plays, 60 a second")
    with TrainingHost(AGENTS, FEATURES, hidden=HIDDEN, memory_min_size=1_000) as training:
        snapshot = training.snapshot()
        before = _inferring(snapshot, frames // 4)
        play(training.train, 60)
        first = training.session._loaded_version
        learned = play(training.train, frames)
        versions = training.session._loaded_version - first
        dropped = training.session.outbox.dropped
    after = _inferring(snapshot, frames // 4)
    assert versions, "no policy arrived"
    assert not dropped, "rows were dropped"
    bench.note(
        topic,
        f"Played: {frames} frames at 60 a second with {AGENTS} agents and hidden layers of"
        f" {HIDDEN}, {versions} policies arrived; a frame takes from when it is due. Inference"
        " plays before and after, without a hive at work or with none.",
    )
    yield from _judged(topic, learned, [before, after])


def _judged(topic: str, learned: Played, inferred: Sequence[Played]) -> Iterator[Row]:
    slowest = [played.slowest() for played in inferred]
    bound = AtMost(round(sum(slowest) / len(slowest) + TOLERATED, 2))
    yield alone(topic, "played, late frames", "frames", [learned.late], AtMost(0))
    yield Row(
        topic,
        "played, 99th percentile",
        "ms",
        Spread.of([learned.slowest()]),
        bound,
        "inference",
        Spread.of(slowest),
    )
    yield alone(topic, "played, longest frame", "ms", [max(learned.milliseconds)])
    busy = 100 * learned.cpu / learned.seconds
    yield alone(topic, "played, threads of the client", "% of a core", [busy], BUSY)


def _inferring(snapshot: bytes, frames: int) -> Played:
    with TrainingHost(AGENTS, FEATURES, learns=False) as player:
        player.load(snapshot)
        play(player.infer, 30)
        return play(player.infer, frames)
