"""Fleets that are fed and read as arrays, by the native library and in Python."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkml import Host, Limits
from arkml.errors import EntryPointMissing, GuestBusy, GuestError, TooManyBytes, UsageError
from arkml.runtime import native

PAGE = 1 << 16
APPLET = Path(__file__).parents[2] / "fixtures" / "guests" / "c_applet.wasm"
COUNT = 5
PLAYER = b"""(module
  (memory (export "memory") 1 3)
  (global (export "fixed") i32 (i32.const 64))
  (global $moves (export "moves") (mut i32) (i32.const 64))
  (global (export "wide") i64 (i64.const 64))
  (global $asked (mut i32) (i32.const 0))
  (global $at (mut i32) (i32.const 64))
  (func (export "state") (result i32)
    (global.set $asked (i32.add (global.get $asked) (i32.const 1)))
    (if (i32.eq (global.get $at) (i32.const -2)) (then unreachable))
    (global.get $at))
  (func (export "asked") (result i32) (global.get $asked))
  (func (export "lie") (param i32) (global.set $at (local.get 0)) (global.set $moves (local.get 0)))
  (func (export "player") (param f32 f64)
    (f32.store (i32.const 64) (local.get 0))
    (f32.store (i32.const 68) (f32.demote_f64 (local.get 1))))
  (func (export "add") (param i32 i64) (result i64)
    (i64.add (i64.extend_i32_u (local.get 0)) (local.get 1)))
  (func (export "divide") (param i32) (result i32) (i32.div_u (i32.const 12) (local.get 0)))
  (func (export "grow") (drop (memory.grow (i32.const 1))))
  (func (export "ark_applet_update")
    (f32.store (i32.const 72) (f32.add (f32.load (i32.const 72)) (f32.load (i32.const 64))))))"""
NUMBERS = np.arange(COUNT, dtype=np.float32)


@pytest.fixture(params=["native", "pure"])
def way(request, monkeypatch):
    """Let fleets use the native library, or Python alone."""
    if request.param == "pure":
        monkeypatch.setattr(native, "LIBRARY", None)
    return request.param


@pytest.fixture
def fleet(way):  # noqa: ARG001
    with Host() as host, host.fleet(PLAYER, COUNT, name="npc") as made:
        yield made


def test_each_guest_gets_its_own_arguments(fleet):
    result = fleet.call("player", NUMBERS, NUMBERS.astype(np.float64) / 2)

    assert result.failures == {}
    assert fleet.read("state", np.float32, 2).tolist() == [[n, n / 2] for n in range(COUNT)]


def test_a_number_is_for_all_and_an_array_for_each(fleet):
    assert fleet.call("add", np.arange(COUNT), 10).values == [10, 11, 12, 13, 14]
    assert fleet.call("add", 1, np.arange(COUNT)).values == [1, 2, 3, 4, 5]
    assert fleet.call("add", 1, 2).values == [3] * COUNT
    assert fleet.call("add", np.int8(-1), np.array(1)).values == [1 << 32] * COUNT


def test_arrays_follow_the_order_of_only(fleet):
    assert fleet.call("add", np.array([7, 8]), 0, only=[4, 1]).values == [7, 8]

    fleet.call("player", np.array([7.0, 8.0]), 0, only=[4, 1])
    assert fleet.read("state", "f4").tolist() == [0, 8, 0, 0, 7]
    assert fleet.read("state", "f4", only=[1, 4]).tolist() == [8, 7]
    fleet.write("state", np.float32([3, 4]), only=[0, 3])
    assert fleet.read("fixed", "f4").tolist() == [3, 8, 0, 4, 7]


@pytest.mark.parametrize("values", [
    np.array([-1, -(1 << 31), 0, (1 << 31) - 1, (1 << 32) - 1]),
    np.array([-1, 2, -128, 127, 0], np.int8),
    np.array([0, 1, 2, 3, (1 << 32) - 1], np.uint64),
    np.array([True, False, True, False, True]),
    np.array([1, 2, 3, 4, 5], ">i4"),
    np.arange(10)[::2],
])  # fmt: skip
def test_integers_are_signed_or_unsigned_as_those_of_one_guest(fleet, values):
    one_by_one = [
        guest.call("add", int(value), 0) for guest, value in zip(fleet.guests, values, strict=True)
    ]

    assert fleet.call("add", values, 0).values == one_by_one


def test_a_guest_that_fails_by_its_argument_fails_alone(fleet):
    result = fleet.call("divide", np.array([1, 2, 0, 3, 4]))

    assert result.values == [12, 6, None, 4, 3]
    assert list(result.failures) == [2]
    assert fleet.call("divide", np.array([1, 2, 0, 0, 4]), only=range(5)).values == [
        12, 6, None, None, 3,
    ]  # fmt: skip
    assert fleet.call("add", np.arange(COUNT), 0).values == [0, 1, None, None, 4]


@pytest.mark.parametrize(("arguments", "text"), [
    ((np.arange(4), 0), r"argument 1 of add has the shape [4]: it takes a number for each of the 5"
     r" guests that are called, [5]"),
    ((0, np.zeros((5, 1), int)), "argument 2 of add has the shape [5, 1]: it takes a number for"),
    ((NUMBERS, 0), "argument 1 of add is of float32, as [0.0]: an i32 takes whole numbers, by"
     " .astype() if they are whole"),
    ((np.full(5, np.nan), 0), "argument 1 of add is of float64, as [nan]: an i32 takes whole"),
    ((np.array([1, 2, 1 << 32, 4, 5]), 0), "argument 1 of add: 4294967296 of guest 2 does not fit"),
    ((np.array([1, 2, 3, 4, -(1 << 31) - 1]), 0), "-2147483649 of guest 4 does not fit an i32"),
    ((np.array([1, 2, 3, 4, 1 << 64]), 0), "argument 1 of add is of object, as [1]: an i32 takes"),
    ((np.array(list("abcde")), 0), "argument 1 of add is of <U1, as ['a']: an i32 takes whole num"),
    ((np.arange(5), 2.5), "argument 2 of add: 2.5 does not fit an i64: it takes a number, or a"),
    ((np.arange(5), [1, 2, 3, 4, 5]), "argument 2 of add: [1, 2, 3, 4, 5] does not fit an i64: it"
     " takes a number, or a numpy array of one for each guest"),
    (([1, 2, 3, 4, 5], 0), "add: [1, 2, 3, 4, 5] does not fit an i32: it takes a number, or a numpy"
     " array of one for each guest"),
    ((np.arange(5),), "add takes 2 arguments (i32 i64), 1 given"),
])  # fmt: skip
def test_arguments_that_do_not_fit_are_refused_before_any_guest_runs(fleet, arguments, text):
    with pytest.raises(UsageError, match=re.escape(text)):
        fleet.call("add", *arguments)

    assert fleet.call("add", np.arange(COUNT), 0).values == list(range(COUNT))


def test_floats_that_are_too_large_are_refused_and_nan_is_passed_on(fleet):
    with pytest.raises(UsageError, match=r"argument 1 of player: 1e\+300 of guest 3 does not fit"):
        fleet.call("player", np.array([0, np.inf, np.nan, 1e300, 0]), 0)
    fleet.call("player", np.array([0, np.inf, np.nan, 1, 2]), 0)

    assert np.array_equal(
        fleet.read("state", np.float32), np.float32([0, np.inf, np.nan, 1, 2]), equal_nan=True
    )


@pytest.mark.parametrize("name", ["state", "fixed", "moves"])
def test_what_is_written_is_read(fleet, name):
    values = np.arange(COUNT * 6, dtype=np.int16).reshape(COUNT, 2, 3)
    fleet.write(name, values)
    read = fleet.read(name, np.int16, (2, 3))

    assert read.tolist() == values.tolist()
    assert read.flags.writeable
    assert read.flags.c_contiguous
    assert [guest.read_memory(64, 12) for guest in fleet.guests] == [
        row.tobytes() for row in values
    ]
    assert fleet.guests[0].read_memory(76, 4) == bytes(4)


def test_records_are_read_with_their_gaps_and_written_without(fleet):
    record = np.dtype([("x", "<f4"), ("life", "u1")], align=True)
    packed = np.dtype([("x", "<f4"), ("life", "u1")])
    fleet.write("state", np.array([(n, n + 1) for n in range(COUNT)], packed))

    assert fleet.read("state", record)["life"].tolist() == [1, 2, 3, 4, 5]
    with pytest.raises(UsageError, match="which has gaps: give records without"):
        fleet.write("state", np.zeros(COUNT, record))


def test_big_endian_arrays_are_turned(fleet):
    fleet.write("state", NUMBERS.astype(">f4"))

    assert fleet.read("state", ">f4").tolist() == NUMBERS.tolist()
    assert fleet.guests[1].read_memory(64, 4) == np.float32(1).tobytes()


def test_an_address_is_asked_for_once(fleet):
    for _ in range(3):
        fleet.read("state", np.float32)
        fleet.write("state", NUMBERS)
        fleet.read("state", np.float32, only=[2])

    assert fleet.call("asked").values == [1] * COUNT


def test_a_global_that_moves_is_read_each_time(fleet):
    fleet.write("fixed", np.arange(2 * COUNT, dtype=np.int32).reshape(COUNT, 2))
    first = fleet.read("moves", np.int32)
    fleet.call("lie", np.array([64, 68, 64, 68, 64]))

    assert first.tolist() == [0, 2, 4, 6, 8]
    assert fleet.read("moves", np.int32).tolist() == [0, 3, 4, 7, 8]


@pytest.mark.parametrize("name", ["state", "moves"])
def test_a_guest_whose_address_is_outside_of_its_memory_fails_alone(fleet, name):
    fleet.write("fixed", NUMBERS)
    fleet.call("lie", np.array([64, -4, 64, PAGE - 3, PAGE - 4]))
    found = fleet.read(name, np.float32)

    assert found.tolist() == [0, 0, 2, 0, 0]
    assert list(fleet.update()) == [1, 3]
    text = f"npc#1: 4 bytes at {name}, 0xfffffffc, end outside of its memory of {PAGE} bytes"
    assert str(fleet.guests[1].failure) == text
    assert type(fleet.guests[1].failure) is GuestError
    assert fleet.read(name, np.float32).tolist() == [0, 0, 2, 0, 0]
    fleet.write(name, NUMBERS + 1)
    assert [fleet.guests[n].read_memory(64, 4) for n in (1, 3)] == [
        np.float32(n).tobytes() for n in (1, 3)
    ]


def test_a_guest_that_traps_as_it_is_asked_for_its_address_fails_alone(fleet):
    fleet.write("fixed", NUMBERS + 1)
    fleet.call("lie", np.array([64, 64, -2, 64, 64]))

    assert fleet.read("state", np.float32).tolist() == [1, 2, 0, 4, 5]
    assert list(fleet.update()) == [2]


def test_memory_that_has_grown_is_seen(fleet):
    fleet.call("lie", 64)
    with pytest.raises(
        UsageError, match=f"{2 * PAGE} bytes at moves of each guest: the largest of"
    ):
        fleet.read("moves", np.uint8, 2 * PAGE)
    fleet.read("moves", np.uint8)
    fleet.call("grow")
    fleet.call("lie", PAGE)

    assert fleet.read("moves", np.uint8).tolist() == [0] * COUNT
    assert fleet.update() == {}


def test_the_last_state_of_a_guest_that_failed_is_read_and_a_closed_one_has_none(fleet):
    fleet.write("fixed", NUMBERS + 1)
    fleet.call("divide", np.array([1, 0, 1, 1, 1]))
    fleet.guests[3].close()

    assert fleet.read("fixed", np.float32).tolist() == [1, 2, 3, 0, 5]
    assert fleet.read("state", np.float32).tolist() == [1, 0, 3, 0, 5]  # 1 cannot be asked
    fleet.write("state", NUMBERS)
    assert fleet.read("state", np.float32).tolist() == [0, 0, 2, 0, 4]


def test_a_closed_fleet_is_refused(fleet):
    fleet.close()
    for touch in (lambda: fleet.read("fixed", "f4"), lambda: fleet.write("fixed", NUMBERS)):
        with pytest.raises(UsageError, match=r"<Fleet of 5 guests of npc> is closed: make another"):
            touch()


def test_guests_that_join_and_are_replaced_have_rows(fleet):
    fleet.write("state", NUMBERS + 1)
    fleet.replace(fleet.guests[1])
    fleet.remove(fleet.guests[0])
    fleet.join()

    assert fleet.read("state", np.float32).tolist() == [0, 3, 4, 5, 0]


@pytest.mark.parametrize(("dtype", "shape", "text"), [
    (object, (), "dtype is 'object': it takes numbers, as np.float32"),
    ("U4", (), "dtype is '<U4': it takes numbers"),
    ("V4", (), "dtype is '|V4': it takes numbers"),
    ([("a", "f4"), ("b", "O")], (), "dtype is 'object': it takes numbers"),
    ("datetime64[s]", (), "dtype is 'datetime64[s]': it takes numbers"),
    (np.longdouble, (), "it takes numbers, as np.float32"),
    (None, (), "dtype is None: name the numbers that guests have there, as np.float32"),
    ("nothing", (), "dtype is 'nothing': it takes a dtype of numpy"),
    ("f4", -1, "shape is -1: it takes the shape of what one guest has there, as 2 or (3, 4)"),
    ("f4", (2, -3), "shape is (2, -3): it takes the shape"),
    ("f4", 2.0, "shape is 2.0: it takes the shape"),
    ("f4", True, "shape is True: it takes the shape"),
    ("f4", "2", "shape is '2': it takes the shape"),
    ("f4", (1,) * 33, "it takes the shape"),
    ("f4", PAGE, f"{4 * PAGE} bytes at state of each guest: the largest of their memories has"),
])  # fmt: skip
def test_what_cannot_be_read_is_refused(fleet, dtype, shape, text):
    with pytest.raises(UsageError, match=re.escape(text)):
        fleet.read("state", dtype, shape)

    assert fleet.update() == {}


def test_rows_are_limited_and_nothing_takes_nothing(fleet):
    with pytest.raises(TooManyBytes, match="are over the limit of 67108864"):
        fleet.read("state", "f4", 1 << 62)
    with pytest.raises(UsageError, match=r"only=\[9\]: each an index from 0 to 4"):
        fleet.read("state", "f4", only=[9])

    assert fleet.read("state", "f4", (0, 3)).shape == (COUNT, 0, 3)
    assert fleet.read("state", "f4", only=[]).shape == (0,)
    fleet.write("state", np.zeros((COUNT, 0)))


@pytest.mark.parametrize(("values", "text"), [
    (np.zeros((4, 2)), "values has the shape [4, 2]: it takes a row for each of the 5 guests, [5,"),
    (np.array(1.0), "values has the shape []: it takes a row for each of the 5 guests, [5, ...]"),
    ([1, 2, 3, 4, 5], "values is [1, 2, 3, 4, 5]: it takes a numpy array, [5, ...], of the dtype"),
    (np.array([None] * 5), "values is 'object': it takes numbers, as np.float32"),
    (np.array(["a"] * 5), "values is '<U1': it takes numbers, as np.float32"),
    (np.zeros((5, PAGE)), f"{8 * PAGE} bytes at state of each guest: the largest of their"),
])  # fmt: skip
def test_what_cannot_be_written_is_refused(fleet, values, text):
    with pytest.raises(UsageError, match=re.escape(text)):
        fleet.write("state", values)

    assert not fleet.read("state", "f4").any()


@pytest.mark.parametrize("name", ["nothing", "player", "wide", "memory", 7, None, []])
def test_an_export_that_is_no_address_is_refused(fleet, name):
    with pytest.raises(EntryPointMissing, match="npc has no address"):
        fleet.read(name, np.float32)


def test_a_fleet_that_is_in_a_call_is_neither_read_nor_written(way):  # noqa: ARG001
    refused = []

    def policy(observations):
        for touch in (
            lambda: fleet.read("ARK_API_ML", np.uint64),
            lambda: fleet.write("ARK_API_ML", np.zeros(1)),
        ):
            with pytest.raises(GuestBusy):
                touch()
            refused.append(touch)
        return observations[:, :1]

    with Host(policy=policy) as host, host.fleet(APPLET, 1) as fleet:
        fleet.update()
        assert fleet.read("ARK_API_ML", np.uint64).all()

    assert len(refused) == 2


@given(
    addresses=st.lists(
        st.one_of(
            st.integers(-(1 << 31), (1 << 32) - 1),
            st.integers(PAGE - 40, PAGE + 8),
            st.integers(0, 256),
        ),
        min_size=COUNT,
        max_size=COUNT,
    ),
    size=st.integers(0, 40),
    is_pure=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_no_address_reads_or_writes_outside_of_a_memory(addresses, size, is_pure):
    library, native.LIBRARY = native.LIBRARY, None if is_pure else native.LIBRARY
    try:
        with Host(limits=Limits(memory_bytes=PAGE)) as host, host.fleet(PLAYER, COUNT) as fleet:
            pattern = np.arange(COUNT * PAGE, dtype=np.uint8).reshape(COUNT, PAGE)
            for guest, row in zip(fleet.guests, pattern, strict=True):
                guest.write_memory(0, row.tobytes())
            fleet.call("lie", np.array(addresses))
            unsigned = [address & 0xFFFF_FFFF for address in addresses]
            fits = [address + size <= PAGE or not size for address in unsigned]
            read = fleet.read("moves", np.uint8, size)
            fleet.write("moves", np.full((COUNT, size), 255, np.uint8))

            for index, (address, fit) in enumerate(zip(unsigned, fits, strict=True)):
                expected = pattern[index].copy()
                if fit:
                    assert read[index].tolist() == expected[address : address + size].tolist()
                    expected[address : address + size] = 255
                else:
                    assert not read[index].any()
                assert fleet.guests[index].read_memory(0, PAGE) == expected.tobytes()
                assert (fleet.guests[index].failure is None) == fit
    finally:
        native.LIBRARY = library


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("refused", [False, True])
def test_an_address_of_another_state_is_asked_for_again(fleet, whole, refused):
    before = fleet.snapshot() if whole else fleet.guests[1].snapshot()
    for guest in fleet.guests:
        guest.write_memory(128, np.float32(5).tobytes())
    fleet.call("lie", 128)
    if refused:  # after the addresses were asked for
        with pytest.raises(UsageError, match="object"):
            fleet.read("state", object)
    else:
        assert fleet.read("state", np.float32).tolist() == [5] * COUNT
    (fleet if whole else fleet.guests[1]).restore(before)
    fleet.guests[1].write_memory(64, np.float32(7).tobytes())

    assert fleet.read("state", np.float32)[1] == 7


def test_a_fleet_keeps_little_of_the_choices_of_guests_that_it_was_read_for(way):  # noqa: ARG001
    with Host() as host, host.fleet(PLAYER, 9) as fleet:
        for bits in range(1, 512):
            fleet.read("state", np.float32, only=[at for at in range(9) if bits >> at & 1])

        assert len(fleet._memory._located) <= 64
