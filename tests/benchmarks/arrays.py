"""What a game pays to feed and read the guests of a fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from tests.benchmarks.bench import Bench
from tests.benchmarks.fleet import COLD_BYTES, MANY, ColdFrames
from tests.benchmarks.measuring import Block, microseconds
from tests.benchmarks.rows import AtLeast, AtMost, Row, against, alone
from tests.benchmarks.subjects import FIXTURES, check_frame

from arkml import Fleet, Host

TOPIC = "arrays"
NPC = FIXTURES / "guests" / "c_npc.wasm"
ADDRESSES = b"""(module
  (memory (export "memory") 1)
  (global (export "fixed") i32 (i32.const 64))
  (global (export "moves") (mut i32) (i32.const 64))
  (func (export "state") (result i32) (i32.const 64))
  (func (export "player") (param f32 f32)
    (f32.store (i32.const 64) (local.get 0))
    (f32.store (i32.const 68) (local.get 1))))"""
CALL_BOUND, COPY_BOUND = AtMost(0.5), AtMost(0.2)  # µs a guest


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        f"{MANY} guests on one thread. By each guest: a call of an export with two numbers of its"
        " own that it stores, and copies of 8 bytes from and to an exported address. A game's frame"
        f" is of {MANY} NPCs that a function of Python steers: an input for each, the frame, and"
        " two reads. At 60 frames a second the caches are cold: between two frames"
        f" {COLD_BYTES >> 20} MiB of other memory are written, and the rest of the time is slept.",
    )
    yield from _copies(bench)
    yield from _frames(bench)


def _copies(bench: Bench) -> Iterator[Row]:
    bench.say(f"arguments and memory of {MANY} guests")
    numbers = np.arange(MANY, dtype=np.float32)
    pairs = np.stack((numbers, numbers), axis=1)
    with Host(threads=1) as host, host.fleet(ADDRESSES, MANY) as fleet:
        guests = fleet.guests
        seconds = bench.block_seconds
        blocks: dict[str, Callable[[], object]] = {
            "call": lambda: fleet.call("player", numbers, numbers),
            "call, one by one": lambda: [
                guest.call("player", x, x) for guest, x in zip(guests, numbers, strict=True)
            ],
            "read, a function's address": lambda: fleet.read("state", np.float32, 2),
            "read, a constant address": lambda: fleet.read("fixed", np.float32, 2),
            "read, an address that moves": lambda: fleet.read("moves", np.float32, 2),
            "read, one by one": lambda: [guest.read_memory(64, 8) for guest in guests],
            "write": lambda: fleet.write("state", pairs),
            "write, one by one": lambda: [
                guest.write_memory(64, pair.tobytes())
                for guest, pair in zip(guests, pairs, strict=True)
            ],
        }
        figures = bench.interleave(
            {name: _each(block, MANY, seconds) for name, block in blocks.items()}
        )
    for name, limit in {"call": CALL_BOUND, "write": COPY_BOUND}.items():
        yield alone(TOPIC, name, "µs", figures[name], limit)
        yield _times(name, figures[name], figures[f"{name}, one by one"])
    for name in figures:
        if name.startswith("read, a"):
            yield alone(TOPIC, name, "µs", figures[name], COPY_BOUND)
    yield _times("read", figures["read, a constant address"], figures["read, one by one"])


def _frames(bench: Bench) -> Iterator[Row]:
    bench.say(f"frames of a game of {MANY} NPCs")
    damages, players = np.zeros(MANY, np.float32), np.zeros((MANY, 2), np.float32)
    with Host(threads=1, policy=_steer) as host, host.fleet(NPC, MANY) as fleet:
        position, life = _places(fleet)

        def called() -> None:
            fleet.call("hit", damages)
            check_frame(fleet)
            fleet.read("position", np.float32, 2)
            fleet.read("life", np.float32)

        def written() -> None:
            fleet.write("player", players)
            check_frame(fleet)
            fleet.read("position", np.float32, 2)
            fleet.read("life", np.float32)

        def one_by_one() -> None:
            for guest in fleet.guests:
                guest.call("hit", 0.0)
            check_frame(fleet)
            for guest in fleet.guests:
                guest.read_memory(position, 8)
            for guest in fleet.guests:
                guest.read_memory(life, 4)

        ways = {
            "the frame alone": lambda: check_frame(fleet),
            "inputs by a call": called,
            "inputs written": written,
            "one by one": one_by_one,
        }
        frames = 5 if bench.quick else 12
        figures = bench.interleave(
            {name: ColdFrames(way, frames, unit=1e-3) for name, way in ways.items()},
            rounds=bench.rounds // 2,
        )
    bare = figures["the frame alone"]
    yield alone(TOPIC, "a frame at 60 a second, alone", "ms", bare)
    for way in ("inputs by a call", "inputs written", "one by one"):
        name = f"a frame at 60 a second, {way}, two reads"
        yield against(TOPIC, name, "ms", figures[way], "the frame alone", bare)


def _places(fleet: Fleet) -> tuple[int, int]:
    """Return the addresses of the position and the life of an NPC."""
    found = []
    for name, value, kind in (("position", (3.5, 4.5), "<f4"), ("life", (0.875,), "<f4")):
        row = np.array(value, kind)
        before = fleet.read(name, kind, len(value))
        fleet.write(name, np.tile(row, (len(fleet), 1)))
        with fleet.guests[0].memory() as view:
            found.append(bytes(view).index(row.tobytes()))
        fleet.write(name, before)
    position, life = found
    return position, life


def _steer(seen: np.ndarray) -> np.ndarray:
    return seen[:, :2] - seen[:, 2:]


def _times(name: str, ours: list[float], theirs: list[float]) -> Row:
    return against(TOPIC, name, "µs", ours, "one by one", theirs, AtLeast(5.0))


def _each(call: Callable[[], object], count: int, seconds: float) -> Block:
    return lambda: microseconds(call, seconds) / count
