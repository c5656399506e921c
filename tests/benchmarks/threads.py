"""What a second thread with a fleet of its own adds."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import Companion
from tests.benchmarks.measuring import Block, Spread
from tests.benchmarks.rows import AtLeast, Row
from tests.benchmarks.subjects import (
    ACTIONS,
    bench_fleet,
    bench_guest,
    check,
    check_frame,
    policy_path,
)

from arkml import Fleet, Guest, Host

TOPIC = "threads"
GUESTS = 64
FEATURES = 8
WORK = 100e-6  # seconds a guest computes in a step
FREE = 1.9  # what two processes must reach, against one
LEARNED = 20  # steps, after which a fleet knows whether threads help
SMALL = 256  # guests that compute nothing
SHORT = 100  # frames of these
AGENTS = 8_192  # of one guest, whose policy runs on several threads
WIDE = 64  # features of each

SPINNING_GUEST = """
(module
  (import "ark-ml-v1" "ml__start_inference"
    (func $start (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "ark-ml-v1" "ml__push_inference_observation"
    (func $push (param i64 i64 i32 f32 i32 i32 f32) (result i32)))
  (import "ark-ml-v1" "ml__submit_inference_observations"
    (func $submit (param i64 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 4)
  (global $number (mut i32) (i32.const 1))
  (global $features (mut i32) (i32.const 0))
  (global $actions (mut i32) (i32.const 0))
  (func (export "open") (param $features i32) (param $actions i32) (param $size i32) (result i32)
    (global.set $features (local.get $features))
    (global.set $actions (local.get $actions))
    (call $start (local.get $features) (local.get $actions)
      (i32.const 65536) (local.get $size) (i32.const 0) (i32.const 0)))
  (func $spin (export "spin") (param $turns i32)
    (loop $turn
      (global.set $number
        (i32.add (i32.mul (global.get $number) (i32.const 1664525)) (i32.const 1013904223)))
      (br_if $turn (local.tee $turns (i32.sub (local.get $turns) (i32.const 1))))))
  (func (export "step") (param $turns i32) (result i32)
    (call $spin (local.get $turns))
    (i32.or
      (call $push (i64.load (i32.const 0)) (i64.const 1) (i32.const 0) (f32.const 0)
        (i32.const 1024) (global.get $features) (f32.const 1))
      (call $submit (i64.load (i32.const 0)) (i32.const 8) (global.get $actions)
        (i32.const 512) (i32.const 1)))))
"""


def rows(bench: Bench) -> Iterator[Row]:
    bench.say("two threads")
    rounds = 6 if bench.quick else 20
    spinning = 0.05 if bench.quick else 0.1
    with (
        Host(threads=1) as host,
        Host() as all_cores,
        _fleet(host) as first,
        _fleet(host) as second,
        _fleet(all_cores) as together,
        bench_fleet(host, SMALL, FEATURES) as third,
        bench_fleet(host, SMALL, FEATURES) as fourth,
        Companion("spinner", spinning) as left,
        Companion("spinner", spinning) as right,
    ):
        step, short = _step(_turns(first)), [third, fourth]
        _seconds([together], step, LEARNED)
        crowds = {at: bench_guest(at, AGENTS, WIDE) for at in (host, all_cores)}
        _frames(crowds[all_cores], LEARNED)
        blocks: dict[str, Block] = {
            "control": lambda: two_over_one(left, right),
            "one": lambda: _seconds([first], step),
            "two": lambda: _seconds([first, second], step),
            "together": lambda: _seconds([together], step),
            "short, one": lambda: _seconds(short[:1], check_frame, SHORT),
            "short, two": lambda: _seconds(short, check_frame, SHORT),
            "crowd": lambda: _frames(crowds[host]),
            "crowd, together": lambda: _frames(crowds[all_cores]),
        }
        figures = bench.interleave(blocks, rounds=rounds)
    control = statistics.median(figures["control"])
    is_free = [found >= FREE for found in figures["control"]]
    bench.note(
        TOPIC,
        f"Fleets of {GUESTS} guests that compute {WORK * 1e6:.0f} µs a step, one call a step. Two"
        f" processes reached {control:.2f}x one; {sum(is_free)} of {rounds} rounds count, in which"
        f" they reached {FREE}x: then two cores were free.",
    )
    for name, alone, limit in (("two", "one", 1.7), ("short, two", "short, one", 1.6)):
        doubled = [seconds / 2 for seconds in figures[name]]  # twice the work
        what = "two threads, a fleet each" + f" of {SMALL} short frames" * ("short" in name)
        yield _row(what, doubled, figures[alone], is_free, AtLeast(limit))
    yield _row("one fleet, all cores", figures["together"], figures["one"], is_free, AtLeast(1.7))
    what, alone = f"one guest of {AGENTS:,} agents, all cores", figures["crowd"]
    their = "one thread, the same guest"
    yield _row(what, figures["crowd, together"], alone, is_free, AtLeast(1.2), their)


def _row(
    what: str,
    ours: Sequence[float],
    alone: Sequence[float],
    is_free: Sequence[bool],
    limit: AtLeast,
    their: str = "one thread, one fleet",
) -> Row:
    """Return a row beside one thread with one fleet, of the rounds in which cores were free."""
    speed_ups = [one / seconds for one, seconds in zip(alone, ours, strict=True)]
    free = [speed_up for speed_up, counts in zip(speed_ups, is_free, strict=True) if counts]
    counted = len(free) >= max(3, len(is_free) // 4)
    return Row(
        TOPIC,
        what,
        "ms a step",
        Spread.of([seconds * 1e3 for seconds in ours]),
        limit,
        their,
        Spread.of([seconds * 1e3 for seconds in alone]),
        Spread.of(free if counted else speed_ups),
        why_not="" if counted else "two cores were not free",
    )


def _fleet(host: Host) -> Fleet:
    fleet = host.fleet(SPINNING_GUEST.encode(), GUESTS)
    model = policy_path(FEATURES).read_bytes()
    for guest in fleet.guests:
        guest.write_memory(65_536, model)
    check(*fleet.call("open", FEATURES, ACTIONS, len(model)).values)
    check(*fleet.call("step", 1).values)
    return fleet


def _turns(fleet: Fleet) -> int:
    """How often the guest's loop turns in WORK seconds, when nothing is in its way."""
    guest = fleet.guests[0]
    tried = 100_000
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        guest.call("spin", tried)
        best = min(best, time.perf_counter() - start)
    return int(tried * WORK / best)


def two_over_one(left: Companion, right: Companion) -> float:
    """How much more two processes do than one."""
    alone = left.measure()
    left.begin()
    right.begin()
    return (left.finish() + right.finish()) / alone


def _frames(guest: Guest, frames: int = 20) -> float:
    """Seconds of a frame of one guest."""
    start = time.perf_counter()
    check(*{guest.call("frame") for _ in range(frames)})
    return (time.perf_counter() - start) / frames


def _step(turns: int) -> Callable[[Fleet], None]:
    return lambda fleet: check(*fleet.call("step", turns).values)


def _seconds(fleets: list[Fleet], step: Callable[[Fleet], None], steps: int = 8) -> float:
    """How long each fleet takes for a step, each in its thread."""
    ready = threading.Barrier(len(fleets) + 1)

    def run(fleet: Fleet) -> Callable[[], None]:
        def steps_of() -> None:
            ready.wait()
            for _ in range(steps):
                step(fleet)

        return steps_of

    threads = [threading.Thread(target=run(fleet)) for fleet in fleets]
    for thread in threads:
        thread.start()
    ready.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - start) / steps
