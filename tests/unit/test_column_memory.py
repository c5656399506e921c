"""The blocks of column memory, as the buddy system has them."""

import linecache
import random
import sys
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from arkml.errors import ColumnsFull
from arkml.limits import MIB, Limits
from arkml.runtime.columns.arena import PAGE, Arena, block_bytes
from arkml.runtime.columns.region import Records, Region
from arkml.runtime.columns.slabs import Columns, Shape
from arkml.runtime.shared_engine import shared_engine
from arkml.runtime.shim import control_block as at


@pytest.fixture
def make_arena():
    engine = shared_engine(Limits().wasm_stack).engine
    return lambda limit=64 * MIB: Arena(engine, limit)


def resident(arena):
    """Return the bytes of an arena that are in memory, whatever else the process has there."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0]:  # the head of a mapping
            start, end = (int(word, 16) for word in words[0].split("-"))
            inside = start < arena.base + PAGE * PAGE and end > arena.base
        elif inside and words[0] == "Rss:":
            found += int(words[1]) * 1_024
    return found


def test_blocks_in_use_do_not_overlap_and_begin_with_zeros(make_arena):
    arena, chance = make_arena(), random.Random(3)
    used = {}
    for number in range(2_000):
        if used and chance.random() < 0.5:
            offset = chance.choice(sorted(used))
            arena.free(offset, used.pop(offset))
        else:
            size = chance.choice([1, 64, 100, 1_000, 5_000, 70_000])
            offset = arena.allocate(size)
            assert bytes(arena.bytes[offset : offset + size]) == bytes(size)
            assert offset % block_bytes(size) == 0
            arena.bytes[offset : offset + size] = bytes([number % 255 + 1]) * size
            used[offset] = size
    warm = [size for size, free in arena._free.items() for is_warm in free.values() if is_warm]
    places = sorted(used.items())

    assert arena._warm == sum(warm) > 0
    for (offset, size), (following, _) in pairwise(places):
        assert offset + block_bytes(size) <= following


class CutOff(Exception):
    """What a signal handler raises."""


@contextmanager
def cut_off(line):
    """Raise CutOff at the line of column memory with that number from now on, as a handler may."""
    left = line

    def trace(frame, event, _):
        nonlocal left
        if "runtime/columns/" not in frame.f_code.co_filename:
            return None
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()
        if event == "line" and not text.startswith("with "):  # where no handler runs
            left -= 1
            if left == 0:
                raise CutOff
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    except CutOff:
        pass
    finally:
        sys.settrace(before)


def require_apart(arena, used):
    """Assert that blocks in use overlap neither each other, nor free ones, nor the top."""
    blocks = [*used.items(), *((o, s) for s, free in arena._free.items() for o in free)]
    blocks += [(offset, size) for size, offset, _ in arena._returned]
    places = [(offset, offset + block_bytes(size)) for offset, size in sorted(blocks)]
    for (_, end), (start, _) in pairwise([*places, (arena._top, arena._top)]):
        assert end <= start


def test_blocks_do_not_overlap_wherever_a_signal_handler_cut_their_making_off(make_arena):
    arena, chance, used = make_arena(), random.Random(5), {}
    for number in range(3_000):
        if used and chance.random() < 0.5:
            offset = chance.choice(sorted(used))
            arena.free(offset, used.pop(offset))
        size, offset = chance.choice([64, 100, 512, 1_000, 5_000]), None
        with cut_off(number % 60):
            offset = arena.allocate(size)
        if offset is not None:
            used[offset] = size
        require_apart(arena, used)


def test_records_are_freed_once_wherever_a_signal_handler_cut_their_growth_off(make_arena):
    arena = make_arena()
    control = arena.allocate(at.CONTROL_SIZE)
    for line in range(1, 90):
        records = Records(arena, control, MIB)
        records.open(0)
        with cut_off(line):
            records.open(7)
        records.release()

        require_apart(arena, {control: at.CONTROL_SIZE})


@pytest.mark.parametrize("work", ["growth", "end"])
def test_a_queue_is_freed_once_wherever_a_signal_handler_cut_off(make_arena, work):
    arena = make_arena()
    control = arena.allocate(at.CONTROL_SIZE)
    for line in range(1, 500):
        columns, records = Columns(arena, Limits(), siblings=2), Records(arena, control, MIB)
        region = Region(columns, records, 0, Shape(3, 1, training=False, rows=1), line)
        region.grow(1, 1_000)
        with cut_off(line if work == "growth" else 0):
            region.grow(200, 9_000)
        with cut_off(line if work == "end" else 0):
            region.close()
        region.close()
        records.release()

        require_apart(arena, {control: at.CONTROL_SIZE})
        arena.allocate(64)  # which takes back what was freed
        require_apart(arena, {control: at.CONTROL_SIZE})
        for slab in [slab for slabs in columns._slabs.values() for slab in slabs]:
            assert len(set(slab.free)) == len(slab.free)


def test_small_blocks_that_were_freed_become_a_large_one(make_arena):
    arena = make_arena(4 * MIB)
    blocks = [arena.allocate(1_000) for _ in range(3_000)]
    with pytest.raises(ColumnsFull):
        arena.allocate(2 * MIB)
    for block in blocks:
        arena.free(block, 1_000)

    assert arena.allocate(2 * MIB) == 2 * MIB
    assert arena.allocate(MIB) == MIB


@pytest.mark.parametrize("size", [1_000, PAGE, 32 * MIB])
def test_pages_of_freed_blocks_go_back_to_the_system(make_arena, size):
    arena = make_arena()
    before = resident(arena)
    blocks = [arena.allocate(size) for _ in range(32 * MIB // block_bytes(size))]
    unused = resident(arena) - before
    for block in blocks:
        arena.bytes[block : block + size] = b"\1" * size
    during = resident(arena) - before
    for block in blocks:
        arena.free(block, size)
    arena.allocate(1)  # joins what was freed
    after = resident(arena) - before

    assert unused < 2 * MIB
    assert during > 31 * MIB
    assert after < 4 * MIB


def test_the_shapes_of_one_of_many_siblings_leave_memory_to_the_others(make_arena):
    columns = Columns(make_arena(1_024 * MIB), Limits(), siblings=200)
    shapes = [Shape(65_000 - number, 1, False, 1) for number in range(200)]
    taken = [columns.take(shape) for shape in shapes]
    places = {(id(slab), number) for slab, number in taken}

    assert len(places) == len(shapes)
    assert len(taken[0][0].free) > 100  # a slab has regions for the siblings, as long as it may
    assert len(taken[-1][0].free) == 0


def test_siblings_of_one_shape_lie_beside_each_other(make_arena):
    columns = Columns(make_arena(), Limits(), siblings=200)
    taken = [columns.take(Shape(3, 1, False, 1)) for _ in range(200)]

    assert len({id(slab) for slab, _ in taken}) == 1
    assert [number for _, number in taken] == list(range(200))


def test_regions_that_are_given_back_make_room_for_other_spares(make_arena):
    columns = Columns(make_arena(1_024 * MIB), Limits(), siblings=200)
    for _ in range(3):
        taken = [columns.take(Shape(65_000 - number, 1, False, 1)) for number in range(50)]
        assert len(taken[0][0].free) > 100
        for slab, number in taken:
            columns.give(slab, number)

    assert columns._slabs == {}
    assert columns._spare == 0


def test_records_take_memory_from_the_first_session_on(make_arena):
    arena = make_arena()
    control = arena.allocate(at.CONTROL_SIZE)
    words, where, count = arena.words, (control + at.RECORDS) >> 2, (control + at.RECORD_COUNT) >> 2
    top, records = arena._top, Records(arena, control, MIB)

    assert (arena._top, words[where], words[count]) == (top, 0, 0)
    records.open(0)
    words[records.start(0) + (at.HANDLE >> 2)] = 7
    assert (words[where], words[count]) == (records.offset, 1)
    records.open(2)
    assert (words[where], words[count]) == (records.offset, 4)
    assert words[records.start(0) + (at.HANDLE >> 2)] == 7  # moved along

    records.release()
    records.release()
    assert arena.allocate(at.CONTROL_SIZE) == records.offset  # four records, free again
