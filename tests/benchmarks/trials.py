"""Trials: ticks a second over gRPC and in process, and the time of a tick by actors and trials."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import Companion
from tests.benchmarks.rows import AtLeast, AtMost, Row, against, alone

TOPIC = "trials"

BESIDE_BARE = AtLeast(0.5)
BESIDE_GRPC = AtLeast(8.0)
EXPONENT = AtMost(1.1)

WIRED, SESSIONS = (2, 8, 64), (2, 8)
ACTORS, TRIALS = (2, 8, 64), (10, 100, 1_000)


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        "Observations of 65 bytes, one for each actor, actions of 16; environment, actors and"
        " server in one process and event loop. The bare program passes on the same messages over"
        " grpc.aio without any check. In process the parts are written with our Python SDK, beside"
        " the same parts at gRPC endpoints of the same process. The exponents are slopes of the"
        f" logarithms of the time of a tick: one trial of {ACTORS[0]} to {ACTORS[-1]} actors, and"
        f" {TRIALS[0]:,} to {TRIALS[-1]:,} trials of two actors.",
    )
    yield from _wired(bench)
    yield from _in_process(bench)
    yield from _growth(bench)


def _wired(bench: Bench) -> Iterator[Row]:
    for count in WIRED:
        bench.say(f"trials over gRPC, {count} actors")
        found = taking_turns(
            bench, {kind: ("trial_wire", kind, count) for kind in ("ours", "bare")}
        )
        yield against(
            TOPIC, f"a tick over gRPC, {count} actors", "us", micros(found["ours"]),
            "a bare grpc.aio program", micros(found["bare"]), BESIDE_BARE,
        )  # fmt: skip


def _in_process(bench: Bench) -> Iterator[Row]:
    for count in SESSIONS:
        bench.say(f"trials in process, {count} actors")
        found = taking_turns(
            bench, {kind: ("trial_sessions", kind, count, 1) for kind in ("local", "grpc")}
        )
        yield against(
            TOPIC, f"a tick in process, {count} actors", "us", micros(found["local"]),
            "our gRPC", micros(found["grpc"]), BESIDE_GRPC,
        )  # fmt: skip


def _growth(bench: Bench) -> Iterator[Row]:
    bench.say("ticks by actors and by trials")
    by_actors = taking_turns(bench, {str(n): ("trial_sessions", "local", n, 1) for n in ACTORS})
    by_trials = taking_turns(bench, {str(n): ("trial_sessions", "local", 2, n) for n in TRIALS})
    for name, counts, found, share in (
        ("actors", ACTORS, by_actors, False),
        ("trials", TRIALS, by_trials, True),
    ):
        # Ticks of all trials are counted together: that of each takes as many times longer.
        slopes = [
            _slope(
                counts,
                [(count if share else 1) / found[str(count)][number] for count in counts],
            )
            for number in range(len(found[str(counts[0])]))
        ]
        yield alone(TOPIC, f"exponent of the time of a tick by {name}", "", slopes, EXPONENT)


def taking_turns(
    bench: Bench, programs: Mapping[str, tuple[object, ...]]
) -> Mapping[str, Sequence[float]]:
    """Return the figures of programs that take turns."""
    with ExitStack() as stack:
        blocks = {
            name: stack.enter_context(Companion(str(words[0]), *words[1:])).measure
            for name, words in programs.items()
        }
        return bench.interleave(blocks, rounds=3 if bench.quick else 9)


def micros(ticks: Sequence[float]) -> list[float]:
    """Return microseconds a tick of figures that are ticks a second."""
    return [1e6 / figure for figure in ticks]


def _slope(counts: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the slope of the line nearest to the logarithms."""
    x, y = [math.log(count) for count in counts], [math.log(second) for second in seconds]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    over = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return over / sum((a - mean_x) ** 2 for a in x)
