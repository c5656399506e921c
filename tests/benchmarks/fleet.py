"""What a step of one of many guests costs."""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.benchmarks import frame
from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import Companion
from tests.benchmarks.framed import UPDATE
from tests.benchmarks.measuring import Block, microseconds
from tests.benchmarks.rows import AtLeast, AtMost, Row, against, alone
from tests.benchmarks.subjects import LOGGING_APPLET, bench_fleet, check, check_frame

from arkml import Fleet, Host
from arkml.runtime.threads import usable_processors

TOPIC = "fleet"
FEATURES = 8
MANY, FEW = 1_000, 64
CROWDS = (FEW, MANY, 4_000)  # two of 10,000 need more mappings than Linux allows by default
MINUTE = 3_600  # frames
STEPS = 20  # submits inside one call of `frames`
BOUND, FRAME_BOUND = AtMost(6.0), AtMost(2.2)
COLD_BYTES = 64 << 20  # more than the caches hold


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        f"Guests of one agent each, network {FEATURES}-64-64-3, by each guest and step. "
        f'"Call a step": the host calls every guest for each step. "Loop": a guest steps'
        f' {STEPS} times in one call and is suspended at each submit. "Frame": the host runs a'
        " frame of every guest by `Fleet.update`, of an export that takes and returns nothing; the"
        " call of that export by `Fleet.call` is measured beside it. All run on one thread where no"
        " cores are named. At 60 frames a second the"
        " caches are cold: between two frames"
        f" {COLD_BYTES >> 20} MiB of other memory are written, and the rest of the time is slept.",
    )
    yield from _many(bench)
    yield from _few(bench)
    for count in CROWDS:
        yield from _cores(bench, count)
    yield from _paced(bench)


def _many(bench: Bench) -> Iterator[Row]:
    bench.say(f"{MANY} guests")
    plain = Companion("plain_wasmtime", MANY, FEATURES, bench.block_seconds)
    with Host(threads=1) as host, plain, bench_fleet(host, MANY, FEATURES) as fleet:
        seconds = bench.block_seconds
        figures = bench.interleave(
            {
                "call": _together(fleet, "frame", 1, seconds),
                "loop": _together(fleet, "frames", STEPS, seconds),
                "frame": _frames(fleet, seconds),
                "frame, called": _together(fleet, UPDATE, 1, seconds, value=None),
                "call, one by one": _one_by_one(fleet, "frame", 1, seconds),
                "loop, one by one": _one_by_one(fleet, "frames", STEPS, seconds),
                "plain": plain.measure,
                "cold": ColdFrames(
                    lambda: check_frame(fleet), 5 if bench.quick else 12, unit=1e-6 * len(fleet)
                ),
            },
            rounds=bench.rounds * 2 // 3,
        )
    for way, label in _WAYS.items():
        ours = figures[way]
        name = f"{MANY} guests, {label}"
        yield alone(TOPIC, name, "µs", ours, BOUND)
        yield _times(name, ours, "ours, one by one", figures[f"{way}, one by one"], 3.0)
        yield _times(name, ours, "plain wasmtime-py", figures["plain"], 6.0)
    frames = figures["frame"]
    name = f"{MANY} guests, frame"
    yield alone(TOPIC, name, "µs", frames, FRAME_BOUND)
    yield against(TOPIC, name, "µs", frames, "ours, a call", figures["frame, called"], AtMost(0.9))
    yield alone(TOPIC, f"{MANY} guests, frame, 60 a second", "µs", figures["cold"])


def _few(bench: Bench) -> Iterator[Row]:
    bench.say(f"{FEW} guests")
    with Host(threads=1) as host, bench_fleet(host, FEW, FEATURES) as fleet:
        seconds = bench.block_seconds
        blocks: dict[str, Block] = {
            "call": _together(fleet, "frame", 1, seconds),
            "loop": _together(fleet, "frames", STEPS, seconds),
            "frame": _frames(fleet, seconds),
        }
        if bench.peer is not None:
            parts = {"call": "frame_us", "loop": "frame_inner_us", "frame": "frame_us"}
            for way, part in parts.items():
                blocks[f"{way}, peer"] = frame.peers(bench.peer, "ort", 1, FEATURES, part)
        figures = bench.interleave(blocks)
    for way, label in _WAYS.items():
        yield _few_row(f"{FEW} guests, {label}", figures, way, AtMost(1.0))
    yield _few_row(f"{FEW} guests, frame", figures, "frame", AtMost(0.7))


def _cores(bench: Bench, count: int) -> Iterator[Row]:
    """Yield rows of a fleet on all cores, beside the same fleet on one thread."""
    bench.say(f"{count} guests on all cores")
    with (
        Host() as host,
        Host(threads=1) as other,
        bench_fleet(host, count, FEATURES) as fleet,
        bench_fleet(other, count, FEATURES) as alone_,
    ):
        seconds = bench.block_seconds
        figures = bench.interleave(
            {"all": _frames(fleet, seconds), "one": _frames(alone_, seconds)}
        )
    limit = AtLeast(0.95 if count == FEW else 1.2)
    name = f"{count} guests, frame, {usable_processors()} cores"
    yield against(TOPIC, name, "µs", figures["all"], "one thread", figures["one"], limit)


def _paced(bench: Bench) -> Iterator[Row]:
    """Yield rows of a fleet that logs lines of a level that is off, at 60 frames a second."""
    bench.say(f"{MANY} guests that log, a minute")
    with Host() as host, host.fleet(LOGGING_APPLET, MANY) as fleet:
        first, *frames = [_timed(fleet) for _ in range(120 if bench.quick else MINUTE)]
    times = [one.seconds for one in frames]
    median, parts = statistics.median(times), statistics.quantiles(times, n=1_000)
    slow = [one for one in frames if one.seconds > 2 * median]
    switched = sum(one.switches > 0 for one in slow)
    collected = sum(one.collections > 0 and not one.switches for one in slow)
    bench.note(
        TOPIC,
        f"Of {len(times):,} frames of guests that log, {len(slow)} took longer than twice the"
        f" median: in {switched} the kernel gave a processor to others, in {collected} Python"
        f" collected garbage, and {len(slow) - switched - collected} are not explained.",
    )
    name, than = f"{MANY} guests that log a line a frame", ("the median frame", [median * 1e3])
    yield alone(TOPIC, f"{name}, the median frame", "ms", [median * 1e3])
    yield against(TOPIC, f"{name}, p99", "ms", [parts[989] * 1e3], *than, AtMost(2.0))
    yield against(TOPIC, f"{name}, p99.9", "ms", [parts[998] * 1e3], *than)
    yield against(TOPIC, f"{name}, the first", "ms", [first.seconds * 1e3], *than)


class _Frame(NamedTuple):
    """What a frame took: seconds, processors lost to others, and garbage collections."""

    seconds: float
    switches: int
    collections: int


def _timed(fleet: Fleet) -> _Frame:
    """Run a frame of a fleet at 60 frames a second."""
    switches, collections, start = _switches(), _collections(), time.perf_counter()
    check_frame(fleet)
    seconds = time.perf_counter() - start
    found = _Frame(seconds, _switches() - switches, _collections() - collections)
    time.sleep(max(0.0, 1 / 60 - seconds))
    return found


def _switches() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _collections() -> int:
    """Return how often Python has looked through its oldest objects."""
    return int(gc.get_stats()[-1]["collections"])


_WAYS = {"call": "call a step", "loop": "loop"}


def _few_row(name: str, figures: Mapping[str, Sequence[float]], way: str, limit: AtMost) -> Row:
    theirs = figures.get(f"{way}, peer")
    return against(
        TOPIC,
        name,
        "µs",
        figures[way],
        "peer, one by one",
        list(theirs) if theirs is not None else None,
        limit,
    )


def _times(
    name: str, ours: Sequence[float], competitor: str, theirs: Sequence[float], bound: float
) -> Row:
    return against(TOPIC, name, "µs", ours, competitor, theirs, AtLeast(bound))


def _together(
    fleet: Fleet, function: str, steps: int, seconds: float, value: int | None = 0
) -> Block:
    arguments = (steps,) if steps > 1 else ()

    def call() -> None:
        result = fleet.call(function, *arguments)
        if result.failures or any(returned != value for returned in result.values):
            raise AssertionError(f"{function} of the guests that are measured failed")

    return _each(call, len(fleet) * steps, seconds)


def _frames(fleet: Fleet, seconds: float) -> Block:
    return _each(lambda: check_frame(fleet), len(fleet), seconds)


class ColdFrames:
    """A block of frames at 60 a second, each with cold caches; its median, in units of seconds."""

    def __init__(self, frame: Callable[[], object], frames: int, *, unit: float) -> None:
        self._frame = frame
        self._frames = frames
        self._unit = unit
        self._other = bytearray(COLD_BYTES)

    def __call__(self) -> float:
        times: list[float] = []
        for _ in range(self._frames):
            start = time.perf_counter()
            self._other[:] = bytes(COLD_BYTES)
            before = time.perf_counter()
            self._frame()
            now = time.perf_counter()
            times.append(now - before)
            time.sleep(max(0.0, 1 / 60 - (now - start)))
        return statistics.median(times) / self._unit


def _one_by_one(fleet: Fleet, function: str, steps: int, seconds: float) -> Block:
    arguments = (steps,) if steps > 1 else ()
    return _each(
        lambda: check(*(guest.call(function, *arguments) for guest in fleet.guests)),
        len(fleet) * steps,
        seconds,
    )


def _each(call: Callable[[], object], steps: int, seconds: float) -> Block:
    return lambda: microseconds(call, seconds) / steps
