"""What it costs a guest to ask its game something."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from tests.benchmarks.bench import Bench
from tests.benchmarks.measuring import Block, microseconds
from tests.benchmarks.rows import AtMost, Row, against, alone

from arkml import CallingGuests, Fleet, Host, game_function

TOPIC = "functions"
MANY = 1_000
MANY_BOUND, ONE_BOUND = AtMost(1.5), AtMost(8.0)
GUEST = b"""(module
  (import "env" "raycast" (func $raycast (param f32 f32 f32) (result f32)))
  (import "env" "raycast_one" (func $raycast_one (param f32 f32 f32) (result f32)))
  (global $seen (mut f32) (f32.const 0))
  (func (export "idle") (global.set $seen (f32.const 1)))
  (func (export "all") (global.set $seen
    (call $raycast (global.get $seen) (f32.const 2) (f32.const 3))))
  (func (export "each") (global.set $seen
    (call $raycast_one (global.get $seen) (f32.const 2) (f32.const 3)))))"""
Floats = npt.NDArray[np.float32]


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        f"{MANY} guests on one thread ask for a raycast in each frame: all of a round by one call"
        " of a function for many, or each by a call of its own. By each guest, without what the"
        " same frame takes that asks for nothing.",
    )
    bench.say(f"{MANY} guests ask their game")
    functions = {("env", "raycast"): _raycast, ("env", "raycast_one"): _raycast_one}
    with Host(threads=1, imports=functions) as host, host.fleet(GUEST, MANY) as fleet:
        found = bench.interleave(
            {name: _asked(fleet, name, bench.block_seconds) for name in ("idle", "all", "each")}
        )
    all_, each = (
        [asked - idle for asked, idle in zip(found[name], found["idle"], strict=True)]
        for name in ("all", "each")
    )
    yield alone(TOPIC, f"{MANY} guests, one by one", "µs", each, ONE_BOUND)
    yield alone(TOPIC, f"{MANY} guests, all at once", "µs", all_, MANY_BOUND)
    yield against(TOPIC, f"{MANY} guests, all at once", "µs", all_, "one by one", each, AtMost(0.3))


@game_function(many=True)
def _raycast(callers: CallingGuests, x: Floats, y: Floats, angle: Floats) -> Floats:
    return x + y * angle + callers.indices.astype(np.float32)


def _raycast_one(x: float, y: float, angle: float) -> float:
    return x + y * angle


def _asked(fleet: Fleet, function: str, seconds: float) -> Block:
    """Return a block that measures calls of a function, in µs by each guest."""

    def call() -> None:
        failures = fleet.call(function).failures
        if failures:
            raise AssertionError(f"{function} of the guests that are measured failed: {failures}")

    return lambda: microseconds(call, seconds) / len(fleet)
