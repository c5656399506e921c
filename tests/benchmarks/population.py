"""What many guests cost to make and to keep; run as a module, in a process of its own."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import ROOT
from tests.benchmarks.framed import framed
from tests.benchmarks.rows import AtMost, Row, alone, alone_with_control
from tests.benchmarks.spinner import control
from tests.benchmarks.subjects import BENCH_GUEST, check_frame, open_sessions

from arkml import Fleet, Host
from arkml.guests.guest import calls_of

TOPIC = "population"
SIZES = (100, 1_000, 10_000)
LIMITED = (1_000, 10_000)  # a hundred guests share the cost of the first too little
CREATION, MEMORY = AtMost(70.0), AtMost(27.0)
FEATURES = 8
PAGE = 4_096
PRESENT = 1 << 63  # of an entry in /proc/self/pagemap


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        "Fleets of guests of one agent each, in a process of their own. Times are of the"
        " processor: all that the process computes. Memory is resident memory by each guest,"
        " without the pages of its own linear memory that are present: after the fleet was made,"
        " after it has run frames, and the most while it ran one. The first frame is the first by"
        " `Fleet.update`, which begins the loop that the next ones run in.",
    )
    if not Path("/proc/self/pagemap").exists():
        bench.note(TOPIC, "This system does not tell: no /proc/self/pagemap.")
        return
    for size in SIZES:
        bench.say(f"a fleet of {size}")
        yield from _rows(size, rounds=3 if bench.quick else 7)


def _rows(size: int, rounds: int) -> Iterator[Row]:
    turns: list[float] = []
    found: list[dict[str, float]] = []
    for _ in range(rounds):
        turns.append(control())
        found.append(_measured(size))
    for part, unit, limit in (
        ("create", "µs", None),
        ("create and first frame", "µs", CREATION),
        ("memory made", "KiB", None),
        ("memory after frames", "KiB", MEMORY),
        ("memory at most", "KiB", None),
        ("guest's own pages", "KiB", None),
    ):
        figures = [one[part] for one in found]
        name = f"{size} guests, {part}"
        asserted = limit if size in LIMITED else None
        if part.startswith("create"):
            yield alone_with_control(TOPIC, name, unit, figures, turns, asserted)
        else:
            yield alone(TOPIC, name, unit, figures, asserted)


def _measured(size: int) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks.population", str(size)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main(size: int) -> dict[str, Any]:
    """Make a fleet and run it; what each guest costs."""
    host = Host()
    program = host.compile(framed(BENCH_GUEST))
    with host.fleet(program, 1) as first:  # what all fleets share is loaded
        open_sessions(first, FEATURES)
    empty = _resident("VmRSS")
    start = time.process_time()
    fleet = host.fleet(program, size)
    took = time.process_time() - start
    made = _resident("VmRSS") - empty - _touched(fleet)
    open_sessions(fleet, FEATURES)
    start = time.process_time()
    check_frame(fleet)
    first_frame = time.process_time() - start
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    check_frame(fleet)
    touched = _touched(fleet)
    after = _resident("VmRSS") - empty - touched
    peak = _resident("VmHWM") - empty - touched
    return {
        "create": took / size * 1e6,
        "create and first frame": (took + first_frame) / size * 1e6,
        "memory made": made / size / 1024,
        "memory after frames": after / size / 1024,
        "memory at most": peak / size / 1024,
        "guest's own pages": touched / size / 1024,
    }


def _resident(field: str) -> int:
    """A field of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def _touched(fleet: Fleet) -> int:
    """Bytes of the guests' linear memories that are present."""
    total = 0
    with Path("/proc/self/pagemap").open("rb", buffering=0) as pages:
        for guest in fleet.guests:
            memory = calls_of(guest).instance._sandbox._native_memory
            count = memory.pages() * (65_536 // PAGE)
            pages.seek(memory.base // PAGE * 8)
            entries = struct.unpack(f"<{count}Q", pages.read(8 * count))
            total += PAGE * sum(1 for entry in entries if entry & PRESENT)
    return total


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
