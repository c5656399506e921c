"""What a game pays to save guests and to bring them back, beside whole copies of their memories."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator

from tests.benchmarks.bench import Bench
from tests.benchmarks.fleet import MANY
from tests.benchmarks.measuring import microseconds
from tests.benchmarks.rows import AtLeast, AtMost, Row, against, alone
from tests.benchmarks.subjects import FIXTURES, check_frame

from arkml import Host
from arkml.guests.guest import calls_of

TOPIC = "states"
GUEST = FIXTURES / "guests" / "c_applet.wasm"
ONE_BOUND, ALL_BOUND = AtMost(30.0), AtMost(10.0)  # µs; ms


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        f"{GUEST.name} with 128 KiB of memory, of which it has touched 8; one, and a fleet of"
        f" {MANY}. A whole copy is one memcpy of each memory, and nothing else of a state.",
    )
    bench.say(f"snapshots and restores of {MANY} guests")
    with (
        Host(threads=1) as host,
        host.fleet(GUEST, MANY) as fleet,
        host.fleet(GUEST, MANY) as other,
    ):
        check_frame(fleet)
        guest, saved = fleet.guests[0], fleet.snapshot()
        one = guest.snapshot()
        places = [
            calls_of(each).instance.memory_place for each in other.guests
        ]  # to read a memory touches it
        seconds = bench.block_seconds
        blocks: dict[str, Callable[[], object]] = {
            "snapshot of one": guest.snapshot,
            "restore of one": lambda: guest.restore(one),
            "snapshot of all": fleet.snapshot,
            "restore of all": lambda: fleet.restore(saved),
            "whole copies": lambda: [ctypes.string_at(*place) for place in places],
        }
        figures = bench.interleave(
            {
                name: (lambda block=block: microseconds(block, seconds))
                for name, block in blocks.items()
            }
        )
    for name in ("snapshot of one", "restore of one"):
        yield alone(TOPIC, name, "µs", figures[name], ONE_BOUND)
    whole = _milliseconds(figures["whole copies"])
    for name in ("snapshot of all", "restore of all"):
        ours = _milliseconds(figures[name])
        yield alone(TOPIC, f"{name} {MANY}", "ms", ours, ALL_BOUND)
        yield against(TOPIC, f"{name} {MANY}", "ms", ours, "whole copies", whole, AtLeast(1.0))


def _milliseconds(figures: list[float]) -> list[float]:
    return [figure / 1000 for figure in figures]
