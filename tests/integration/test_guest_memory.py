"""Memory of guests, read and written by those who embed them."""

from __future__ import annotations

import ctypes
import re
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkml import Host, Limits, Replay
from arkml.envs.core.fleet_env import FleetEnv
from arkml.errors import (
    ArkmlError,
    GuestBusy,
    GuestError,
    GuestFailed,
    InstanceLimitExceeded,
    InvalidArguments,
    UsageError,
)
from arkml.guests import loader
from arkml.guests.guest import calls_of
from arkml.testing import Proxy, ThreadedHost, proxy_text

PAGE = 1 << 16
GIB = 1 << 30
ROOT = Path(__file__).parents[2]
PUBLIC_API = ROOT / "docs" / "api.txt"
PENDULUM = ROOT / "fixtures" / "guests" / "c_pendulum.wasm"
ECHO = b"""(module
  (memory (export "memory") 1 1)
  (func (export "alloc") (param i32) (result i32) (local.get 0)))"""
LARGE = b"""(module
  (memory (export "memory") 40000)
  (func (export "alloc") (param i32) (result i32) (local.get 0))
  (func (export "peek") (param i32) (result i32) (i32.load8_u (local.get 0))))"""

NUMBERS = st.one_of(
    st.integers(-(1 << 70), 1 << 70),
    st.integers(-PAGE, 3 * PAGE),
    st.sampled_from([-(1 << 31), -1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 63]),
    st.integers(-(1 << 31), (1 << 31) - 1).map(np.int32),
    st.integers(-(1 << 63), (1 << 63) - 1).map(np.int64),
)
NO_INTEGERS = st.sampled_from([1.0, True, None, "8", b"8", float("nan"), np.float32(1)])


@pytest.fixture(scope="module")
def guest():
    with Host() as host:
        yield host.load(ECHO)


@pytest.fixture(scope="module")
def doors(guest, tmp_path_factory):
    """Return what reads and writes the memory of a guest, by name: a read and a write of each."""
    trace = tmp_path_factory.mktemp("traces") / "echo.trace"
    with Host(trace=trace) as traced:
        traced.load(ECHO).call("alloc", 1)
    replay = Replay(trace, ECHO)
    host = ThreadedHost()
    threaded = host.load(ECHO)
    proxy = Proxy(host.load(proxy_text().encode()))
    yield {
        "guest": (guest.read_memory, guest.write_memory),
        "threaded": (threaded.read_memory, threaded.write_memory),
        "proxy": (proxy.read, proxy.guest.write_memory),
        "replay": (replay.read_memory, None),
    }
    host.close()
    replay.close()


@pytest.mark.parametrize("door", ["guest", "threaded", "proxy", "replay"])
@given(pointer=NUMBERS | NO_INTEGERS, size=NUMBERS | NO_INTEGERS)
@settings(max_examples=200, deadline=None)
def test_no_address_or_size_reads_outside_of_a_memory(doors, door, pointer, size):
    read, _ = doors[door]
    is_whole = all(isinstance(x, int | np.integer) and x is not True for x in (pointer, size))
    fits = is_whole and 0 <= int(size) <= PAGE and 0 <= int(pointer) <= PAGE - int(size)
    is_empty = is_whole and size == 0 and -(1 << 31) <= int(pointer) < 1 << 32

    if fits or is_empty:
        assert len(read(pointer, size)) == size
    else:
        with pytest.raises(ArkmlError):
            read(pointer, size)


@pytest.mark.parametrize("door", ["guest", "threaded", "proxy"])
@given(pointer=NUMBERS | NO_INTEGERS, data=st.binary(max_size=64))
@settings(max_examples=200, deadline=None)
def test_no_address_writes_outside_of_a_memory(doors, door, pointer, data):
    read, write = doors[door]
    is_whole = isinstance(pointer, int | np.integer) and pointer is not True
    if is_whole and 0 <= int(pointer) <= PAGE - len(data):
        write(pointer, data)

        assert read(pointer, len(data)) == data
    elif is_whole and not data and -(1 << 31) <= int(pointer) < 1 << 32:
        write(pointer, data)
    else:
        with pytest.raises(InvalidArguments):
            write(pointer, data)


def test_a_pointer_of_the_guests_choice_never_reaches_the_memory_of_the_host(guest):
    for low in (-1, -4, -65536, -(32 << 20), -(33 << 20), -(1 << 30), -(1 << 31)):
        pointer = guest.call("alloc", low)

        assert pointer == low
        with pytest.raises(InvalidArguments, match="outside a memory of 65536 bytes"):
            guest.write_memory(pointer, b"host")
        with pytest.raises(InvalidArguments, match="outside a memory of 65536 bytes"):
            guest.read_memory(pointer, 4)


def test_signed_and_unsigned_addresses_above_2_gib_are_the_same_place():
    limits = Limits(memory_bytes=3 * GIB, guest_bytes=4 * GIB)
    with Host(limits=limits) as host, host.load(LARGE) as guest:
        high = (2 << 30) + 512
        pointer = guest.call("alloc", high)
        guest.write_memory(pointer, b"high")

        assert pointer == high - (1 << 32)
        assert guest.read_memory(high, 4) == guest.read_memory(pointer, 4) == b"high"
        assert guest.read_memory(np.uint32(high), 4) == b"high"
        assert guest.call("peek", high) == ord("h")


def test_what_is_written_is_the_bytes_of_a_buffer(guest):
    floats = np.array([1.0, -2.0, 0.5], np.float32)
    guest.write_memory(256, floats)
    guest.write_memory(512, floats[::2])
    guest.write_memory(768, bytearray(b"abc"))
    guest.write_memory(800, memoryview(b"xyz"))

    assert guest.read_memory(256, 12) == floats.tobytes()
    assert guest.read_memory(512, 8) == floats[::2].tobytes()
    assert guest.read_memory(768, 3) == b"abc"
    assert guest.read_memory(800, 3) == b"xyz"
    for wrong in ("text", 5, None, [1, 2]):
        with pytest.raises(InvalidArguments, match="is not bytes"):
            guest.write_memory(0, wrong)


@pytest.mark.parametrize(
    "references",
    [
        np.array([object(), "text"], object),
        np.array([(1, "text")], [("number", "i4"), ("object", "O")]),
        (ctypes.py_object * 2)("a", "b"),
        (ctypes.c_void_p * 2)(1, 2),
        (ctypes.c_char_p * 1)(b"text"),
        (ctypes.POINTER(ctypes.c_int) * 1)(),
    ],
    ids=["objects", "a field of objects", "references", "pointers", "texts", "typed pointers"],
)
def test_addresses_of_the_host_are_never_given_to_a_guest(guest, references):
    guest.write_memory(1024, bytes(64))
    with pytest.raises(InvalidArguments, match="addresses of the host"):
        guest.write_memory(1024, references)

    assert guest.read_memory(1024, 64) == bytes(64)


def test_numbers_are_no_addresses_whatever_their_fields_are_called(guest):
    numbers = np.array([(1, 2)], [("O", "<i4"), ("P", "<i4")])
    guest.write_memory(1024, numbers)
    guest.write_memory(1040, np.array([1j]))

    assert guest.read_memory(1024, 8) == numbers.tobytes()
    assert guest.read_memory(1040, 16) == np.array([1j]).tobytes()


def test_a_view_that_was_released_is_refused_in_a_sentence(guest):
    view = memoryview(bytearray(4))
    view.release()

    with pytest.raises(InvalidArguments, match="is not bytes"):
        guest.write_memory(0, view)


def test_a_closed_guest_has_no_memory_to_read():
    with Host() as host:
        gone = host.load(ECHO)
        gone.close()

        with pytest.raises(GuestFailed, match="closed"):
            gone.read_memory(0, 4)
        with pytest.raises(GuestFailed, match="closed"):
            gone.write_memory(0, b"four")


def test_a_guest_is_not_closed_by_another_thread_while_its_memory_is_read():
    """The address of a memory that was freed is any other thing's."""
    with Host() as host:
        read = host.load(ECHO)
        refused: list[str] = []

        def close() -> None:
            try:
                read.close()
            except GuestBusy as error:
                refused.append(str(error))

        with calls_of(read).instance.memory() as memory:
            thread = threading.Thread(target=close)
            thread.start()
            thread.join()

            assert memory.read(0, 4) == bytes(4)
        assert refused


def test_a_guest_that_is_closed_in_the_middle_of_reading_is_freed_behind_that():
    """A signal handler may close it there, in the thread that reads."""
    with Host() as host:
        read = host.load(ECHO)
        sandbox = calls_of(read).instance._sandbox
        sizes = sandbox.read(lambda: (sandbox.pages, read.close(), sandbox.pages))

        assert sizes == (1, None, 1)
        assert (sandbox.pages, sandbox.read(lambda: 5)) == (0, None)
        assert read.account.memory_bytes == 0


def test_accounts_and_counts_are_read_while_other_threads_close_guests():
    """They lie in what is freed then: the memory of another one, or no memory at all."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    with Host() as host:
        compiled = host.compile(ECHO)
        guests = [host.load(compiled)]
        is_over, failures = threading.Event(), []

        def look() -> None:
            while not is_over.is_set():
                guest = guests[-1]
                try:
                    seen = guest.account.memory_bytes, host.account.memory_bytes
                    assert seen[0] in (0, PAGE), seen
                    assert seen[1] % PAGE == 0, seen
                    assert guest.statistics.rows == 0
                except Exception as error:  # noqa: BLE001 -- it is told in the main thread
                    failures.append(error)

        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(200):
                guests.append(host.load(compiled))
                guests[-2].close()
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
            sys.setswitchinterval(interval)

    assert failures == []


def test_a_host_is_not_closed_while_it_makes_a_guest(monkeypatch):
    """A signal handler, or another thread, would free what the guest is made of."""
    with Host() as host:
        make = loader.Instance

        def closing(*arguments, **named):
            with pytest.raises(GuestBusy, match="is being made"):
                host.close()
            return make(*arguments, **named)

        monkeypatch.setattr(loader, "Instance", closing)
        guest = host.load(ECHO)

        assert guest.call("alloc", 5) == 5
    with pytest.raises(UsageError, match="this host is closed"):
        host.load(ECHO)


def test_a_call_that_was_about_to_begin_finds_its_guest_closed():
    """Another thread may close it between the first look and the guard of calls."""
    with Host() as host:
        gone, other = host.load(ECHO), host.load(ECHO)
        loop = calls_of(gone)
        entry = loop.instance.entry("alloc")
        gone.close()

        with pytest.raises(GuestFailed, match="is closed"):
            loop.fiber.start(entry, (5,), None)
        with pytest.raises(GuestFailed, match="is closed"):
            loop.fiber.unpark()
        with pytest.raises(GuestFailed, match="is closed"):
            calls_of(gone).instance._sandbox._found(lambda: None)
        assert other.call("alloc", 5) == 5


def test_hosts_are_closed_while_other_threads_use_their_guests():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    failures: list[Exception] = []

    def use(host: Host) -> None:
        while True:
            try:
                with host.load(ECHO) as guest, host.fleet(ECHO, 2) as fleet:
                    guest.call("alloc", 1)
                    fleet.call("alloc", 1)
            except GuestError:
                pass
            except UsageError:  # the host is closed
                return
            except Exception as error:  # noqa: BLE001 -- it is told in the main thread
                failures.append(error)
                return

    try:
        for _ in range(10):
            host = Host()
            threads = [threading.Thread(target=use, args=(host,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            while True:
                try:
                    host.close()
                    break
                except GuestBusy:
                    pass
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)

    assert failures == []


def test_every_public_function_that_takes_an_address_is_tried_here():
    found = re.findall(
        r"^  (arkml[\w.]+)\(.*\b(?:pointer|address): int", PUBLIC_API.read_text(), re.MULTILINE
    )

    assert sorted(found) == [
        "arkml.Guest.read_memory",
        "arkml.Guest.write_memory",
        "arkml.Replay.read_memory",
        "arkml.testing.Proxy.is_untouched",
        "arkml.testing.Proxy.read",
        "arkml.testing.ThreadedGuest.read_memory",
        "arkml.testing.ThreadedGuest.write_memory",
    ]


NO_INDICES = [(-1,), (2,), (0, 0), (1 << 70,), (-(1 << 63),), (np.int64(-1),), (1.5,), ("0",)]
NO_COUNTS = [0, -1, -(1 << 70), np.int32(-1), 1.0, float("nan"), float("inf"), "1", None, True]
TOO_MANY = [1 << 31, 1 << 32, 1 << 70, np.uint32(0x3333_3334), np.int32(0x7FFF_FFFF)]
"""Numbers of guests for which no machine has room; some of them times five are few again."""


@pytest.mark.parametrize("only", [*NO_INDICES, (None,), ([0],)])
def test_a_fleet_takes_no_index_but_those_of_its_guests(only):
    with Host() as host, host.fleet(ECHO, instances=2) as fleet, pytest.raises(UsageError):
        fleet.call("alloc", 1, only=only)


@pytest.mark.parametrize(
    "size", [-1, PAGE, 1 << 63, 10**30, np.int64(-1), 1.5, True, np.True_, "8", None], ids=repr
)
def test_room_that_a_proxy_does_not_have_is_refused_and_takes_nothing(size):
    with Host() as host:
        proxy = Proxy(host.load(proxy_text().encode()))
        with pytest.raises(UsageError, match=r"room for .* bytes"):
            proxy.room(size)

        assert proxy.room(np.int64(8)) == 8
        assert proxy.room(1) == 16


@pytest.mark.parametrize("number", [*NO_COUNTS, np.True_, [1]], ids=repr)
def test_a_number_of_guests_is_a_whole_one(number):
    with Host() as host, host.fleet(ECHO, instances=2) as fleet:
        with pytest.raises(UsageError, match="1 at least"):
            host.fleet(ECHO, number)
        with pytest.raises(UsageError, match="1 at least"):
            fleet.join(number)
        with pytest.raises(UsageError, match="1 at least"):
            FleetEnv(ECHO, number)

        assert len(fleet) == 2


@pytest.mark.parametrize("number", TOO_MANY, ids=repr)
def test_more_guests_than_there_is_room_for_are_refused_before_anything_is_made(number):
    with Host() as host, host.fleet(ECHO, instances=2) as fleet:
        with pytest.raises(InstanceLimitExceeded):
            host.fleet(ECHO, number)
        with pytest.raises(InstanceLimitExceeded):
            fleet.join(number)
        with pytest.raises(InstanceLimitExceeded):
            FleetEnv(PENDULUM.read_bytes(), number)

        assert len(fleet) == 2


def test_a_view_shows_the_memory_within_its_block_and_is_released_behind_it():
    with Host() as host, host.load(ECHO) as guest:
        guest.write_memory(8, b"before")
        with guest.memory() as view:
            assert (len(view), view.readonly, view.format, bytes(view[8:14])) == (
                PAGE, True, "B", b"before",
            )  # fmt: skip
            with pytest.raises(TypeError, match="read-only"):
                view[8] = 1
            guest.write_memory(8, b"within")  # and calls may be made
            assert guest.call("alloc", 7) == 7
            assert bytes(view[8:14]) == b"within"

        with pytest.raises(ValueError, match="released"):
            view[8]
        with guest.memory() as again:
            assert bytes(again[8:14]) == b"within"


def test_a_part_of_a_view_that_is_left_is_refused_and_keeps_the_memory():
    with Host() as host:
        guest = host.load(ECHO)
        guest.write_memory(8, b"kept")
        left = []
        for part in (lambda view: view[8:12], lambda view: np.frombuffer(view, np.uint8)[8:12]):
            refused = pytest.raises(UsageError, match="a part of the view of guest is left behind")
            with refused, guest.memory() as view:
                left.append(part(view))
            with pytest.raises(GuestBusy, match="a view of the memory of guest is in use: close"):
                guest.close()
            assert [bytes(one) for one in left] == [b"kept"]
            left.clear()
        guest.close()


def test_a_guest_is_not_closed_within_the_block_of_a_view():
    with Host() as host, host.fleet(ECHO, 2) as fleet:
        with fleet.guests[1].memory() as view:
            for close in (
                fleet.close, host.close, fleet.guests[1].close,
                lambda: fleet.replace(fleet.guests[1]), lambda: fleet.remove(fleet.guests[1]),
            ):  # fmt: skip
                with pytest.raises(GuestBusy, match=r"a view of the memory of guest#1 is in use"):
                    close()
            assert view[0] == 0
            fleet.call("alloc", 1, only=[1])
        assert len(fleet) == 2


def test_an_error_within_the_block_of_a_view_arrives():
    with Host() as host, host.load(ECHO) as guest:
        with pytest.raises(KeyError, match="ours"), guest.memory() as view:  # noqa: PT012
            part = view[1:2]
            raise KeyError("ours")
        del part
        with guest.memory() as view:
            assert len(view) == PAGE


def test_there_is_no_view_of_a_closed_guest_and_an_empty_one_of_a_guest_without_memory():
    with Host() as host:
        guest = host.load(b"(module)")
        with guest.memory() as view:
            assert bytes(view) == b""
        guest.close()
        with pytest.raises(GuestFailed, match="guest is closed"), guest.memory():
            pass
