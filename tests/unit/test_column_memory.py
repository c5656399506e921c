"""The blocks of column memory, as the buddy system has them."""

import random
from itertools import pairwise
from pathlib import Path

import pytest

from arkml.errors import ColumnsFull
from arkml.limits import MIB, Limits
from arkml.runtime.columns.arena import PAGE, Arena, block_bytes
from arkml.runtime.shared_engine import shared_engine


@pytest.fixture
def make_arena():
    engine = shared_engine(Limits().wasm_stack).engine
    return lambda limit=64 * MIB: Arena(engine, limit)


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4_096


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
    before = resident()
    blocks = [arena.allocate(size) for _ in range(32 * MIB // block_bytes(size))]
    during = resident() - before
    for block in blocks:
        arena.free(block, size)
    arena.allocate(1)  # joins what was freed
    after = resident() - before

    assert during > 31 * MIB
    assert after < 4 * MIB
