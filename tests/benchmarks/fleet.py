"""What a step of one of many guests costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.benchmarks import frame
from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import Companion
from tests.benchmarks.measuring import Block, microseconds
from tests.benchmarks.rows import AtLeast, AtMost, Row, against, alone
from tests.benchmarks.subjects import bench_fleet, check

from arkml import Fleet, Host

TOPIC = "fleet"
FEATURES = 8
MANY, FEW = 1_000, 64
STEPS = 20  # submits inside one call of `frames`
BOUND = AtMost(6.0)


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        f"Guests of one agent each, network {FEATURES}-64-64-3, by each guest and step. "
        f'"Call a step": the host calls every guest for each step. "Loop": a guest steps'
        f" {STEPS} times in one call and is suspended at each submit.",
    )
    yield from _many(bench)
    yield from _few(bench)


def _many(bench: Bench) -> Iterator[Row]:
    bench.say(f"{MANY} guests")
    plain = Companion("plain_wasmtime", MANY, FEATURES, bench.block_seconds)
    with Host() as host, plain, bench_fleet(host, MANY, FEATURES) as fleet:
        seconds = bench.block_seconds
        figures = bench.interleave(
            {
                "call": _together(fleet, "frame", 1, seconds),
                "loop": _together(fleet, "frames", STEPS, seconds),
                "call, one by one": _one_by_one(fleet, "frame", 1, seconds),
                "loop, one by one": _one_by_one(fleet, "frames", STEPS, seconds),
                "plain": plain.measure,
            },
            rounds=bench.rounds * 2 // 3,
        )
    for way, label in _WAYS.items():
        ours = figures[way]
        name = f"{MANY} guests, {label}"
        yield alone(TOPIC, name, "µs", ours, BOUND)
        yield _times(name, ours, "ours, one by one", figures[f"{way}, one by one"], 3.0)
        yield _times(name, ours, "plain wasmtime-py", figures["plain"], 6.0)


def _few(bench: Bench) -> Iterator[Row]:
    bench.say(f"{FEW} guests")
    with Host() as host, bench_fleet(host, FEW, FEATURES) as fleet:
        seconds = bench.block_seconds
        blocks: dict[str, Block] = {
            "call": _together(fleet, "frame", 1, seconds),
            "loop": _together(fleet, "frames", STEPS, seconds),
        }
        if bench.peer is not None:
            parts = {"call": "frame_us", "loop": "frame_inner_us"}
            for way, part in parts.items():
                blocks[f"{way}, peer"] = frame.peers(bench.peer, "ort", 1, FEATURES, part)
        figures = bench.interleave(blocks)
    for way, label in _WAYS.items():
        yield _few_row(f"{FEW} guests, {label}", figures, way)


_WAYS = {"call": "call a step", "loop": "loop"}


def _few_row(name: str, figures: Mapping[str, Sequence[float]], way: str) -> Row:
    theirs = figures.get(f"{way}, peer")
    return against(
        TOPIC,
        name,
        "µs",
        figures[way],
        "peer, one by one",
        list(theirs) if theirs is not None else None,
        AtMost(1.0),
    )


def _times(
    name: str, ours: Sequence[float], competitor: str, theirs: Sequence[float], bound: float
) -> Row:
    return against(TOPIC, name, "µs", ours, competitor, theirs, AtLeast(bound))


def _together(fleet: Fleet, function: str, steps: int, seconds: float) -> Block:
    arguments = (steps,) if steps > 1 else ()
    return _each(lambda: fleet.call(function, *arguments), len(fleet) * steps, seconds)


def _one_by_one(fleet: Fleet, function: str, steps: int, seconds: float) -> Block:
    arguments = (steps,) if steps > 1 else ()

    def call() -> list[object]:
        return [guest.call(function, *arguments) for guest in fleet.guests]

    return _each(call, len(fleet) * steps, seconds)


def _each(call: Callable[[], Sequence[object]], steps: int, seconds: float) -> Block:
    def block() -> float:
        return microseconds(lambda: check(*call()), seconds) / steps

    return block
