"""States of modules whose code changes tables: the same calls go the same ways after a restore."""

import random
import re

import pytest
import wasmtime
from tests.integration.guest_text import module
from tests.integration.snapshot_files import altered

from arkml import FleetSnapshot, GuestSnapshot, Host, Limits
from arkml.errors import GuestMemoryFull, GuestTrap, ReloadUndone, StateRefused
from arkml.guests.reloading import Reloaded
from arkml.runtime.module.parsing import parse
from arkml.runtime.module.table_changes import functions_of_tables

TEXT = """(module
    (import "ark-core-v1" "core__has_extension" (func $host (param i64) (result i32)))
    (memory (export "memory") 1)
    (type $f (func (result i32)))
    (table $calls (export "calls") 4 40 funcref) (table $more 2 funcref) (table $any 1 externref)
    (elem (table $calls) (i32.const 0) func $one $two)
    (elem (table $more) (i32.const 1) funcref (ref.func $host))
    (elem declare func $three) (elem $passive funcref (ref.func $four) (ref.null func))
    (func $one (result i32) i32.const 1) (func $two (result i32) i32.const 2)
    (func $three (result i32) i32.const 3) (func $four (result i32) i32.const 4)
    (func (export "five") (result i32) i32.const 5)
    (func (export "set") (param i32) (table.set $calls (local.get 0) (ref.func $three)))
    (func (export "clear") (param i32) (table.set $calls (local.get 0) (ref.null func)))
    (func (export "grow") (param i32)
      (drop (table.grow $calls (ref.func $two) (local.get 0)))
      (drop (table.grow $any (ref.null extern) (local.get 0))))
    (func (export "init") (param i32)
      (table.init $calls $passive (local.get 0) (i32.const 0) (i32.const 2)))
    (func (export "copy") (param i32)
      (table.copy $more $calls (i32.const 0) (local.get 0) (i32.const 1)))
    (func (export "size") (result i32) (table.size $calls))
    (func (export "sizes") (result i32) (table.size $any))
    (func (export "call") (param i32) (result i32) (call_indirect $calls (type $f) (local.get 0)))
    (func (export "more") (result i32) (call_indirect $more (type $f) (i32.const 0)))
    (func (export "ark_applet_update")))
"""
GUEST = TEXT.encode()


def at(guest, index):
    try:
        return guest.call("call", index)
    except GuestTrap as trap:
        return trap.code


def tables(guest):
    """What a guest's tables hold, told by calls: a copy asks, as asking may end a guest."""
    with Host() as host:
        found = [guest.call("size"), guest.call("sizes")]
        state = bytes(guest.snapshot())
        for index in range(found[0]):
            copy = host.load(GUEST)
            copy.restore(GuestSnapshot.load(state))
            found.append(at(copy, index))
        return found


def change(draw, guest):
    size = guest.call("size")
    match draw.randrange(5):
        case 0:
            guest.call("set", draw.randrange(size))
        case 1:
            guest.call("clear", draw.randrange(size))
        case 2:
            guest.call("grow", draw.randrange(3))
        case 3:
            guest.call("init", draw.randrange(size - 1))
        case 4:
            guest.call("copy", draw.randrange(size))


@pytest.mark.parametrize("seed", range(5))
def test_tables_come_back_as_they_were(host, seed):
    draw = random.Random(seed)
    guest = host.load(GUEST)
    kept = []
    for _ in range(20):
        change(draw, guest)
        kept.append((guest.snapshot(), tables(guest)))
    assert len({tuple(shown) for _, shown in kept}) > 2
    draw.shuffle(kept)
    for state, shown in kept:
        guest.restore(state)
        assert tables(guest) == shown
        assert bytes(guest.snapshot()) == bytes(state)


def test_a_function_of_the_host_lies_in_a_table_again(host):
    guest = host.load(GUEST)
    guest.call("set", 0)
    guest.call("copy", 0)
    state = guest.snapshot()
    guest.call("clear", 0)
    guest.call("copy", 0)
    guest.restore(state)

    assert guest.call("more") == 3
    assert guest.snapshot().state.wasm.tables[1] == state.state.wasm.tables[1]
    assert state.state.wasm.tables[1][4:] == b"\0\0\0\0"  # the first function: the imported one


def test_guests_of_a_fleet_have_their_own_tables():
    with Host() as host, Host() as other:
        fleet = host.fleet(GUEST, 3)
        fleet.guests[1].call("set", 1)
        fleet.guests[2].call("grow", 4)
        state = fleet.snapshot()
        shown = [tables(guest) for guest in fleet.guests]
        for guest in fleet.guests:
            guest.call("grow", 1)
            guest.call("clear", 0)
        fleet.restore(state)
        assert [tables(guest) for guest in fleet.guests] == shown
        assert len({tuple(each) for each in shown}) == 3

        copy = other.fleet(GUEST, 3)
        copy.restore(FleetSnapshot.load(bytes(state)))
        assert [tables(guest) for guest in copy.guests] == shown
        assert [state.nbytes for state in (fleet.snapshot(), copy.snapshot())] == [state.nbytes] * 2


def test_a_reload_keeps_tables(host):
    guest = host.load(GUEST)
    guest.call("set", 0)
    guest.call("grow", 2)

    assert guest.reload(TEXT.replace("i32.const 3)", "i32.const 33)").encode()) is Reloaded.KEPT
    assert [guest.call("call", index) for index in (0, 1, 5)] == [33, 2, 2]


KEEPING = re.sub(r"\(drop \(table\.grow.*|\(table\.(set|init|copy) .*", "nop)", TEXT)
KEEPING = KEEPING.replace("nop)\n      nop)", "nop)").encode()
"""The same module, but for code that changes tables."""


def test_changed_tables_do_not_come_along_into_code_that_keeps_tables():
    with Host() as host:
        guest, fleet = host.load(GUEST), host.fleet(GUEST, 2)
        for each in (guest, fleet.guests[1]):
            each.call("set", 0)

        assert [each.reload(KEEPING) for each in (guest, fleet)] == [Reloaded.ANEW] * 2
        assert guest.call("call", 0) == 1
        assert list(fleet.call("call", 0).values) == [1, 1]


def test_code_that_begins_to_change_tables_takes_a_guest_over_and_gives_it_back(host):
    guest = host.load(KEEPING)
    assert guest.reload(GUEST) is Reloaded.KEPT
    guest.call("set", 0)
    with pytest.raises(ReloadUndone):
        guest.call("call", 3)  # within the first calls: the module before goes on

    assert guest.failure is None
    assert guest.call("call", 0) == 1
    guest.snapshot()


def test_a_guest_is_charged_for_tables(host):
    guest = host.load(TEXT.replace("4 40 funcref", "4 funcref").encode())
    small = guest.snapshot()
    before = guest.account.snapshot_bytes
    guest.call("grow", 10_000)
    large = guest.snapshot()

    assert guest.account.snapshot_bytes - 2 * before == 2 * 4 * 10_000
    assert large.nbytes == small.nbytes  # of memories


def test_tables_that_do_not_fit_beside_their_guest_are_refused(make_host):
    limits = Limits(guest_bytes=200_000, memory_bytes=100_000)
    fleet = make_host(limits=limits).fleet(TEXT.replace("4 40 funcref", "4 funcref").encode(), 2)
    fleet.snapshot()
    fleet.guests[1].call("grow", 40_000)
    for each in (fleet, fleet.guests[1]):
        with pytest.raises(GuestMemoryFull):
            each.snapshot()


def with_tables(tables):
    return lambda guest: guest.update(tables=tables)


NULLS = b"\xff" * 16


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "the state has 0 tables that change, the module 3"),
        ([NULLS, NULLS[:8], NULLS[:3]], "a table of 0 elements, and the module takes 1 to"),
        ([NULLS, NULLS[:8], NULLS[:7]], "a table of 1 elements, and the module takes 1 to"),
        ([NULLS, NULLS[:4], NULLS[:4]], "a table of 1 elements, and the module takes 2 to"),
        ([NULLS * 11, NULLS[:8], NULLS[:4]], "a table of 44 elements, .* takes 4 to 40"),
        ([b"\x63\0\0\0" * 4, NULLS[:8], NULLS[:4]], "the state has function 99 in a table"),
        ([NULLS, NULLS[:8], b"\1\0\0\0"], "the state has function 1 in a table"),
    ],
)
def test_a_file_with_other_tables_is_refused_before_anything_is_touched(host, given, sentence):
    guest = host.load(GUEST)
    guest.call("set", 0)
    state = GuestSnapshot.load(altered(guest.snapshot(), with_tables(given)))
    with pytest.raises(StateRefused, match=sentence):
        guest.restore(state)

    assert tables(guest)[:6] == [4, 1, 3, 2, *tables(guest)[4:6]]
    guest.restore(
        GuestSnapshot.load(altered(guest.snapshot(), with_tables([NULLS, NULLS[:8], NULLS[:4]])))
    )
    assert at(guest, 0) == "indirect call to null"


def test_a_function_that_no_segment_lists_is_refused_in_a_sentence(host):
    guest = host.load(
        module(
            """(table $t 1 funcref) (global $g funcref (ref.func $f)) (func $f)
            (func (export "set") (table.set $t (i32.const 0) (global.get $g)))"""
        )
    )
    guest.snapshot()
    guest.call("set")
    with pytest.raises(StateRefused, match=r"element 0 of a table is a function that neither"):
        guest.snapshot()
    assert guest.failure is None


SEGMENTS = {
    "(elem (i32.const 0) func $b)": {1},
    "(elem func $b $c)": {1, 2},
    "(elem (table $u) (i32.const 0) func $b)": {1},
    "(elem declare func $c)": {2},
    "(elem (i32.const 0) funcref (ref.func $b) (ref.null func))": {1},
    "(elem funcref (ref.null func) (ref.func $c))": {2},
    "(elem (table $u) (i32.const 0) funcref (item (ref.func $b)))": {1},
    "(elem declare funcref (ref.func $b))": {1},
    '(func (export "d"))': {3},
    "": set(),
}


@pytest.mark.parametrize("segment", SEGMENTS)
def test_functions_of_each_kind_of_segment_are_known(segment):
    binary = parse(
        wasmtime.wat2wasm(
            f"(module (table $t 4 funcref) (table $u 4 funcref) (func $a) (func $b) (func $c)"
            f" {segment})"
        )
    )
    assert functions_of_tables(binary) == SEGMENTS[segment]
