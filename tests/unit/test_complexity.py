"""The estimate of what compiling a module takes, before it is compiled."""

import contextlib
import dataclasses
import time
import tracemalloc

import numpy as np
import pytest
from tests.module_bombs import (
    BOMBS,
    END,
    NOTHING,
    REAL,
    body,
    empty_functions,
    get,
    ifs,
    loops,
    module,
    wide,
)

from arkml.errors import ModuleTooComplex
from arkml.runtime.module import body_bounds, complexity
from arkml.runtime.module.body_bounds import bodies, bounds, values
from arkml.runtime.module.complexity import check
from arkml.runtime.module.control_flow import ControlFlow, control_flow
from arkml.runtime.module.parsing import parse

BIG = max(REAL.rglob("*.wasm"), key=lambda path: path.stat().st_size)
GUESTS = sorted(REAL.rglob("*.wasm"))


def flow_of(code, *, types=(NOTHING,), locals_=0):
    binary = parse(module([body(code, locals_)], types=types))
    places = bodies(binary)
    type_values = [values(kind) for kind in binary.types]
    start, end = int(places.starts[0]), int(places.ends[0])
    return control_flow(binary.data, start, end, type_values, [0])


@pytest.mark.parametrize("name", BOMBS)
def test_a_module_that_takes_too_much_is_refused_before_it_is_compiled(name):
    real = BIG.read_bytes()
    began = time.process_time()
    check(parse(real))
    started = time.process_time()
    with pytest.raises(ModuleTooComplex, match=r"about .*, the limit for its size is .* due to"):
        check(parse(BOMBS[name]))
    taken = time.process_time() - started

    # 6 times as long for a byte when measured; compiling takes some 200 times as long, or more.
    assert taken / (len(BOMBS[name]) + len(real)) < 60 * (started - began) / len(real)


def test_bodies_that_are_read_in_pieces_have_the_bounds_of_all_together(monkeypatch):
    binary = parse(BIG.read_bytes())
    places, types = bodies(binary), [values(kind) for kind in binary.types]
    functions = [values(kind) for kind in binary.functions]
    whole = body_bounds.bounds(binary, places, types, functions)
    monkeypatch.setattr(body_bounds, "_PIECE", 20_000)
    pieces = body_bounds.bounds(binary, places, types, functions)

    assert len(places.starts) > 50
    for name in body_bounds.FlowCounts.__slots__:
        less = getattr(whole, name) - getattr(pieces, name)

        # Between two bodies lies the size of the next: it counts unless they are in two pieces.
        assert (less >= 0).all()
        assert np.count_nonzero(less) < 0.1 * len(less)


def test_the_memory_of_the_bounds_does_not_grow_with_the_module():
    binary = parse(module([body(b"\x02\x40\x0b" * 300_000)] * 12))
    places = bodies(binary)
    tracemalloc.start()
    body_bounds.bounds(binary, places, [0], [0] * 12)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 128 << 20  # 600 MiB in one piece


def test_the_error_names_the_function_and_what_is_in_it():
    with pytest.raises(ModuleTooComplex, match=r"function 0, with 1,000 locals, .* 1,000 loops in"):
        check(parse(loops(1_000, 1_000)))
    with pytest.raises(ModuleTooComplex, match="due to its 50,000 functions: split it up"):
        check(parse(empty_functions(50_000)))


@pytest.mark.parametrize("path", GUESTS, ids=lambda path: path.stem)
def test_a_real_guest_stays_well_inside(path, monkeypatch):
    monkeypatch.setattr(complexity, "SECONDS_PER_MB", complexity.SECONDS_PER_MB / 8)
    monkeypatch.setattr(complexity, "BYTES_PER_MB", complexity.BYTES_PER_MB / 8)

    check(parse(path.read_bytes()))


@pytest.mark.parametrize("path", GUESTS, ids=lambda path: path.stem)
def test_all_instructions_of_a_real_guest_are_known_and_within_their_bounds(path):
    binary = parse(path.read_bytes())
    places = bodies(binary)
    types = [values(kind) for kind in binary.types]
    functions = [values(kind) for kind in binary.functions]
    most = bounds(binary, places, types, functions)

    for place, (start, end) in enumerate(zip(places.starts, places.ends, strict=True)):
        flow = control_flow(binary.data, int(start), int(end), types, functions)
        assert flow is not None
        for field in dataclasses.fields(ControlFlow):
            assert getattr(flow, field.name) <= getattr(most, field.name)[place], field.name


def test_a_small_module_is_quick_and_a_costly_or_large_one_is_not():
    assert check(parse(module([body(get(0) + b"\x1a", 1)])))
    assert not check(parse(ifs(2_000, 500)))
    assert not check(parse(module([body(b"\x41\0\x1a" * 20_000)])))


def test_branches_are_counted_by_their_target():
    code = b"\x03\x40\x02\x40" + b"\x41\0\x0d\1" * 3 + b"\x41\0\x0d\0" + END + END

    flow = flow_of(code)

    assert (flow.edges, flow.merges) == (4, 3**2 + 1)
    assert (flow.blocks, flow.depth) == (2, 1)
    assert flow.loop_branches == 3


def test_every_outermost_loop_counts_by_the_depth_of_the_loops_in_it():
    loops = b"\x03\x40" * 3 + END * 2 + b"\x03\x40" + END * 2 + b"\x03\x40" * 2 + END * 2
    flow = flow_of(loops)

    assert (flow.blocks, flow.depth, flow.squared_depths) == (6, 3, 3**2 + 2**2)


def test_deep_nests_of_loops_one_after_another_are_refused():
    nest = b"\x03\x40" * 1_500 + END * 1_500
    most = complexity.SECONDS_PER_MB / (60e-9 * 1_500**2)

    assert not check(parse(module([body(nest * int(most))])))
    with pytest.raises(ModuleTooComplex, match="1,500 loops in each other"):
        check(parse(module([body(nest * (int(most) + 1))])))


def test_the_entries_of_a_branch_table_are_counted_by_their_target():
    flow = flow_of(b"\x02\x40\x02\x40\x41\0\x0e\4\0\1\1\1\0" + END + END)

    assert (flow.edges, flow.table_merges, flow.merges) == (5, 2**2 + 3**2, 2)


def test_the_values_of_blocks_are_those_of_their_types():
    code = b"\x41\0" * 3 + b"\x02\1" + END + b"\x1a" * 3

    assert flow_of(code, types=(NOTHING, wide(3))).block_values == 6


def test_constants_and_offsets_are_not_taken_for_instructions():
    floats = b"\x43\x03\x40\x03\x40\x1a" + b"\x44" + b"\x0d" * 8 + b"\x1a"
    vectors = b"\xfd\x0c" + b"\x03" * 16 + b"\x1a"
    numbers = b"\x41\x8d\x8d\x03\x1a" + b"\x41\x40\x1a"

    assert flow_of(floats + vectors + numbers) == ControlFlow()


@pytest.mark.parametrize("code", [b"\xff", b"\x0c\x05", b"\x02", b"\x10\x09", b"\x0e\xff\xff\xff"])
def test_an_unknown_instruction_leaves_the_bound_from_the_bytes(code):
    binary = parse(module([body(code)]))

    assert flow_of(code) is None
    assert check(binary)


def test_bytes_at_random_have_an_answer():
    random = np.random.default_rng(1)
    for size in random.integers(0, 400, 300):
        code = random.choice(np.array([2, 3, 4, 5, 11, 12, 13, 14, 16, 17, 64, 252, 1]), size)
        binary = parse(module([body(bytes(code.tolist()), int(size) % 5)]))
        with contextlib.suppress(ModuleTooComplex):
            assert check(binary) in (True, False)
