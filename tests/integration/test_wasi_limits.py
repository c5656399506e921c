import resource
import struct
import time
from pathlib import Path

import pytest
from tests.integration.guest_text import function, module, wasi

from arkml.errors import GuestTimeout, GuestTrap
from arkml.limits import Limits
from arkml.runtime.wasi.clocks import MachineClocks
from arkml.runtime.wasi.linking import Directory, WasiGrant
from arkml.runtime.wasi.shim import LONGEST_PATH, RANDOM_PIECE, WRITE_MOST

SUCCESS, BADF, FAULT, INVAL = 0, 8, 21, 28
TOO_MANY_FILES, NO_ENTRY, NAME_TOO_LONG = 33, 44, 37
STREAMS_AND_DIRECTORY = 4
FILE_NAME, OPENED, LONG_NAME = 64, 16, 65_536
BUFFERS, COUNT, CONTENT, EVENTS = 65_536, 32, 1 << 20, 1 << 21
PAGES, MOST_BUFFERS = 600, 1024
END = PAGES << 16

CALLS = module(
    f'(data (i32.const {FILE_NAME}) "file")',
    function(
        "open",
        f"""(call $path_open (i32.const 3) (i32.const 0) (i32.const {FILE_NAME}) (local.get 0)
        (local.get 1) (i64.const 66) (i64.const 0) (i32.const 0) (i32.const {OPENED}))""",
        "(param i32 i32)",
        "i32",
    ),
    function("opened", f"(i32.load (i32.const {OPENED}))", result="i32"),
    function(
        "open_for_ever",
        """(local $count i32) (local $error i32)
        (loop $more
          (if (local.tee $error (call $open (i32.const 4) (i32.const 1)))
            (then (return
              (i32.add (i32.shl (local.get $error) (i32.const 16)) (local.get $count)))))
          (local.set $count (i32.add (local.get $count) (i32.const 1)))
          (br_if $more (i32.lt_u (local.get $count) (i32.const 60000))))
        (local.get $count)""",
        result="i32",
    ),
    function("trap", "unreachable"),
    function("close", "(call $fd_close (local.get 0))", "(param i32)", "i32"),
    function(
        "renumber", "(call $fd_renumber (local.get 0) (local.get 1))", "(param i32 i32)", "i32"
    ),
    function(
        "make_directory",
        f"(call $path_create_directory (i32.const 3) (i32.const {LONG_NAME}) (local.get 0))",
        "(param i32)",
        "i32",
    ),
    function(
        "link",
        f"""(call $path_symlink (i32.const {LONG_NAME}) (local.get 0) (i32.const 3)
        (i32.const {LONG_NAME}) (local.get 1))""",
        "(param i32 i32)",
        "i32",
    ),
    function("random", "(call $random_get (i32.const 0) (local.get 0))", "(param i32)", "i32"),
    function(
        "poll",
        """(call $poll_oneoff (i32.const 0) (i32.const 0) (local.get 0) (i32.const 0))""",
        "(param i32)",
        "i32",
    ),
    function(
        "wait",
        f"""(call $poll_oneoff (i32.const {BUFFERS}) (i32.const {EVENTS}) (local.get 0)
        (i32.const {COUNT}))""",
        "(param i32)",
        "i32",
    ),
    function(
        "read_for_ever",
        f"""(loop $more (br_if $more (i32.eqz (call $fd_read (i32.const 0) (i32.const {BUFFERS})
          (local.get 0) (i32.const {COUNT})))))""",
        "(param i32)",
    ),
    function(
        "fd_write",
        f"""(call $write_file (local.get 0) (i32.const {BUFFERS}) (local.get 1)
        (i32.const {COUNT}))""",
        "(param i32 i32)",
        "i32",
    ),
    function(
        "fd_pwrite",
        f"""(call $write_file_at (local.get 0) (i32.const {BUFFERS}) (local.get 1) (i64.const 0)
        (i32.const {COUNT}))""",
        "(param i32 i32)",
        "i32",
    ),
    imports=(
        wasi("path_open", "i32 i32 i32 i32 i32 i64 i64 i32 i32"),
        wasi("fd_close", "i32"),
        wasi("fd_renumber", "i32 i32"),
        wasi("path_create_directory", "i32 i32 i32"),
        wasi("path_symlink", "i32 i32 i32 i32 i32"),
        wasi("random_get", "i32 i32"),
        wasi("poll_oneoff", "i32 i32 i32 i32"),
        wasi("fd_read", "i32 i32 i32 i32"),
        wasi("fd_write", "i32 i32 i32 i32").replace("$fd_write", "$write_file"),
        wasi("fd_pwrite", "i32 i32 i32 i64 i32").replace("$fd_pwrite", "$write_file_at"),
    ),
    memory=f'(memory (export "memory") {PAGES})',
)


@pytest.fixture
def host(make_host, tmp_path):
    """A host that grants a writable directory, and eight descriptors to a guest."""
    grant = WasiGrant(directories=[Directory(tmp_path, "/", writable=True)])
    made = make_host(wasi=grant, limits=Limits(descriptors=8))
    with made.load(CALLS) as first:  # for the first file of a process wasmtime opens more
        first.call("open", 4, 0)
    return made


def errno_and_count(guest):
    return divmod(guest.call("open_for_ever"), 1 << 16)


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_three_guests_at_their_limit_leave_the_host_its_descriptors(make_host, tmp_path):
    grant = WasiGrant(directories=[Directory(tmp_path, "/", writable=True)])
    host = make_host(wasi=grant)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, descriptors() + 1000), hard))
    try:
        guests = [host.load(CALLS) for _ in range(3)]
        met = [errno_and_count(guest) for guest in guests]
        content = (tmp_path / "file").read_bytes()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert met == [(TOO_MANY_FILES, 256 - STREAMS_AND_DIRECTORY)] * 3
    assert content == b""


def test_a_descriptor_that_is_closed_can_be_opened_again(host):
    guest = host.load(CALLS)
    free = 8 - STREAMS_AND_DIRECTORY
    met = errno_and_count(guest)
    last = guest.call("opened")
    closed = [guest.call("close", last), guest.call("close", last), guest.call("close", 99)]

    assert met == (TOO_MANY_FILES, free)
    assert closed == [SUCCESS, BADF, BADF]
    assert errno_and_count(guest) == (TOO_MANY_FILES, 1)


def test_a_descriptor_whose_number_another_one_takes_is_closed(host):
    guest = host.load(CALLS)
    before = descriptors()
    errno_and_count(guest)
    last = guest.call("opened")
    to_itself, to_another, from_nothing = (
        guest.call("renumber", *pair) for pair in ((last, last), (last, last - 1), (99, 4))
    )

    assert [to_itself, to_another, from_nothing] == [SUCCESS, SUCCESS, BADF]
    assert descriptors() - before == 8 - STREAMS_AND_DIRECTORY - 1
    assert errno_and_count(guest) == (TOO_MANY_FILES, 1)


def test_an_open_that_fails_uses_up_no_descriptor(host):
    guest = host.load(CALLS)
    failed = {guest.call("open", 4, 0) for _ in range(20)}

    assert failed == {NO_ENTRY}
    assert errno_and_count(guest) == (TOO_MANY_FILES, 8 - STREAMS_AND_DIRECTORY)


def test_a_guest_that_closes_its_directory_opens_no_more_than_its_limit(host):
    guest = host.load(CALLS)
    before = descriptors()
    errno_and_count(guest)
    closed = [guest.call("close", number) for number in range(4)]
    errno_and_count(guest)

    assert closed == [SUCCESS] * 4
    assert descriptors() - before <= 8


def test_descriptors_are_counted_for_each_guest(host):
    first, second = host.load(CALLS), host.load(CALLS)
    errno_and_count(first)

    assert errno_and_count(second) == (TOO_MANY_FILES, 8 - STREAMS_AND_DIRECTORY)


def test_closing_a_guest_closes_its_descriptors(host):
    before = descriptors()
    guest = host.load(CALLS)
    errno_and_count(guest)
    guest.close()

    assert descriptors() == before


def test_a_guest_that_fails_closes_its_descriptors(host):
    before = descriptors()
    guest = host.load(CALLS)
    errno_and_count(guest)
    with pytest.raises(GuestTrap):
        guest.call("trap")

    assert guest.failure is not None
    assert descriptors() == before
    assert len(guest.read_memory(0, 16)) == 16
    guest.close()


def test_long_paths_are_refused_before_they_are_read(host):
    guest = host.load(CALLS)

    def seconds(size):
        started = time.process_time()
        for _ in range(1000):
            assert guest.call("make_directory", size) == NAME_TOO_LONG
            assert guest.call("link", size, 1) == NAME_TOO_LONG
            assert guest.call("link", 1, size) == NAME_TOO_LONG
        return time.process_time() - started

    assert seconds(30 << 20) < 20 * seconds(LONGEST_PATH + 1)  # 1,500 times as long in wasmtime
    assert guest.call("make_directory", LONGEST_PATH) != SUCCESS


@pytest.mark.parametrize("count", [0, 1025, 1_000_000, 0xFFFF_FFFF - (1 << 32)])
def test_counts_of_subscriptions_are_refused_before_any_is_read(host, count):
    assert host.load(CALLS).call("poll", count) == INVAL


def test_random_bytes_come_in_pieces_and_all_of_them(host):
    guest = host.load(CALLS)
    size = 3 * RANDOM_PIECE + 5
    code = guest.call("random", size)
    drawn = guest.read_memory(0, size + 100)
    parts = {drawn[start : start + 16] for start in (0, RANDOM_PIECE, 3 * RANDOM_PIECE - 8)}

    assert code == SUCCESS
    assert len(parts | {bytes(16)}) == 4
    assert drawn[size - 5 : size] != bytes(5)
    assert drawn[size:] == bytes(100)


def test_random_bytes_that_end_outside_of_the_memory_are_refused_undrawn(host):
    guest = host.load(CALLS)
    before = guest.read_memory(0, 4096)

    assert guest.call("random", END + 1) == FAULT
    assert guest.read_memory(0, 4096) == before
    assert guest.call("random", END - 65_536) == SUCCESS


def buffers(*pairs):
    return b"".join(struct.pack("<II", *pair) for pair in pairs)


@pytest.mark.parametrize("name", ["fd_write", "fd_pwrite"])
def test_a_long_buffer_is_written_to_a_file_in_part(host, tmp_path, name):
    guest = host.load(CALLS)
    assert guest.call("open", 4, 1) == SUCCESS
    number = guest.call("opened")
    content = bytes(range(256)) * (WRITE_MOST // 256) + b"the rest"
    asked = buffers((0, 0), (CONTENT, len(content)), (CONTENT, 7))
    guest.write_memory(CONTENT, content)
    guest.write_memory(BUFFERS, asked)
    code, written = guest.call(name, number, 3), guest.read_memory(COUNT, 4)

    assert (code, written) == (SUCCESS, struct.pack("<I", WRITE_MOST))
    assert guest.read_memory(BUFFERS, len(asked)) == asked
    assert (tmp_path / "file").read_bytes() == content[:WRITE_MOST]


@pytest.mark.parametrize("name", ["fd_write", "fd_pwrite"])
def test_lists_of_buffers_that_are_not_long_are_written_as_they_are(host, tmp_path, name):
    guest = host.load(CALLS)
    assert guest.call("open", 4, 1) == SUCCESS
    number = guest.call("opened")
    guest.write_memory(CONTENT, b"content")
    guest.write_memory(BUFFERS, buffers((CONTENT, 7), (0, END), (0, 0)))
    codes = [guest.call(name, number, count) for count in (0, 1, END)]

    assert codes[:2] == [SUCCESS] * 2
    assert codes[2] != SUCCESS  # the list ends outside of the memory
    assert guest.call(name, 99, 1) == BADF
    assert (tmp_path / "file").read_bytes() == b"content"


def test_a_long_buffer_outside_of_the_memory_is_refused(host):
    guest = host.load(CALLS)
    assert guest.call("open", 4, 1) == SUCCESS
    guest.write_memory(BUFFERS, buffers((END - WRITE_MOST, WRITE_MOST + 1)))

    assert guest.call("fd_write", guest.call("opened"), 1) == FAULT


def clocks(*nanoseconds):
    return b"".join(struct.pack("<QB7xI4xQQH6x", 0, 0, 1, timeout, 0, 0) for timeout in nanoseconds)


def test_reads_of_standard_input_are_charged(make_host):
    """The lengths of the buffers are such that the rest was copied for each of them."""
    with Path("/dev/zero").open("rb", buffering=0) as source:
        limits = Limits(call_seconds=3)
        guest = make_host(wasi=WasiGrant(stdin=source), limits=limits).load(CALLS)
        ones = [(CONTENT, 1)] * (MOST_BUFFERS - 1)
        guest.write_memory(BUFFERS, buffers(*ones, (CONTENT, (1 << 20) - len(ones))))
        started = time.thread_time()
        with pytest.raises(GuestTimeout, match=r"over its budget of 0\.1 s"):
            guest.call("read_for_ever", MOST_BUFFERS, budget=0.1)
        used = time.thread_time() - started

    assert used < 0.5
    assert guest.account.import_seconds > 0.7 * used - 0.02


def test_a_look_at_a_wait_costs_the_same_for_any_number_of_clocks(make_host, monkeypatch):
    """A fleet that only waits for clocks sleeps until the first one."""
    readings = 0
    reading = MachineClocks.reading

    def count(clocks):
        nonlocal readings
        readings += 1
        return reading(clocks)

    monkeypatch.setattr(MachineClocks, "reading", count)
    fleet = make_host(wasi=WasiGrant()).fleet(CALLS, 2)
    for guest in fleet.guests:
        guest.write_memory(BUFFERS, clocks(*range(10**12, 10**12 + MOST_BUFFERS - 1), 200_000_000))

    assert fleet.call("wait", MOST_BUFFERS).values == [SUCCESS] * 2
    assert [guest.read_memory(COUNT, 4) for guest in fleet.guests] == [b"\1\0\0\0"] * 2
    assert readings < 2 * MOST_BUFFERS + 50
