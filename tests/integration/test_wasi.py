import asyncio
import io
import os
import socket
import struct
import sys
import threading
import time

import numpy as np
import pytest
from tests.integration.callback_policy import assert_host_works
from tests.integration.guest_text import ACTOR, GUESTS, SLEEPER, function, module, python, wasi

from arkml import GuestEnv, Host
from arkml.errors import GuestCancelled, GuestError, GuestExit, GuestTimeout, LinkError, UsageError
from arkml.guests.guest import calls_of
from arkml.runtime.module.description import ModuleKind
from arkml.runtime.wasi.linking import Directory, WasiGrant

SUCCESS, BADF, FAULT, INVAL, IO, NOT_SUPPORTED = 0, 8, 21, 28, 29, 58
READ, WRITE, CREATE = 1 << 1, 1 << 6, 1

CALLS = module(
    function(
        "poll",
        "(call $poll_oneoff (i32.const 0) (i32.const 512) (local.get 0) (i32.const 1020))",
        "(param i32)",
        "i32",
    ),
    function("yield", "(call $sched_yield)", result="i32"),
    function(
        "read",
        """(i32.store (i32.const 4096) (i32.const 4200)) (i32.store (i32.const 4100) (local.get 1))
        (call $fd_read (local.get 0) (i32.const 4096) (i32.const 1) (i32.const 4104))""",
        "(param i32 i32)",
        "i32",
    ),
    function(
        "write",
        """(i32.store (i32.const 4096) (i32.const 4200)) (i32.store (i32.const 4100) (local.get 1))
        (call $fd_write (local.get 0) (i32.const 4096) (i32.const 1) (i32.const 4104))""",
        "(param i32 i32)",
        "i32",
    ),
    function(
        "read_at",
        "(call $fd_read (local.get 0) (local.get 1) (local.get 2) (local.get 3))",
        "(param i32 i32 i32 i32)",
        "i32",
    ),
    function(
        "write_at",
        "(call $fd_write (local.get 0) (local.get 1) (local.get 2) (local.get 3))",
        "(param i32 i32 i32 i32)",
        "i32",
    ),
    function("exit", "(call $proc_exit (local.get 0))", "(param i32)"),
    function(
        "clock",
        "(drop (call $clock_time_get (local.get 0) (i64.const 0) (i32.const 8)))"
        "(i64.load (i32.const 8))",
        "(param i32)",
        "i64",
    ),
    function("random", "(call $random_get (i32.const 0) (i32.const 32))", result="i32"),
    function(
        "open",
        """(call $path_open (i32.const 3) (i32.const 1) (i32.const 8192) (local.get 0)
        (local.get 1) (local.get 2) (i64.const 0) (i32.const 0) (i32.const 4108))""",
        "(param i32 i32 i64)",
        "i32",
    ),
    function(
        "touch",
        """(call $path_filestat_set_times (i32.const 3) (local.get 1) (i32.const 8192)
        (local.get 0) (i64.const 0) (i64.const 0) (i32.const 5))""",
        "(param i32 i32)",
        "i32",
    ),
    function("opened", "(i32.load (i32.const 4108))", result="i32"),
    function("prestat", "(call $fd_prestat_get (i32.const 3) (i32.const 64))", result="i32"),
    function(
        "arguments",
        """(drop (call $args_sizes_get (i32.const 64) (i32.const 68)))
        (drop (call $args_get (i32.const 128) (i32.const 8192))) (i32.load (i32.const 68))""",
        result="i32",
    ),
    function(
        "environment",
        """(drop (call $environ_sizes_get (i32.const 64) (i32.const 68)))
        (drop (call $environ_get (i32.const 128) (i32.const 8192))) (i32.load (i32.const 68))""",
        result="i32",
    ),
    function(
        "sleep",
        """(memory.fill (i32.const 0) (i32.const 0) (i32.const 48))
        (i32.store (i32.const 16) (i32.const 1))
        (i64.store (i32.const 24) (local.get $nanoseconds))
        (call $poll (i32.const 1))""",
        "(param $nanoseconds i64)",
        "i32",
    ),
    imports=(
        wasi("poll_oneoff", "i32 i32 i32 i32"),
        wasi("sched_yield", ""),
        wasi("fd_read", "i32 i32 i32 i32"),
        wasi("fd_write", "i32 i32 i32 i32"),
        wasi("proc_exit", "i32").replace(" (result i32)", ""),
        wasi("clock_time_get", "i32 i64 i32"),
        wasi("random_get", "i32 i32"),
        wasi("path_open", "i32 i32 i32 i32 i32 i64 i64 i32 i32"),
        wasi("path_filestat_set_times", "i32 i32 i32 i32 i64 i64 i32"),
        wasi("fd_prestat_get", "i32 i32"),
        wasi("args_get", "i32 i32"),
        wasi("args_sizes_get", "i32 i32"),
        wasi("environ_get", "i32 i32"),
        wasi("environ_sizes_get", "i32 i32"),
    ),
    memory='(memory (export "memory") 2)',
)
TEXT, BUFFER = 8192, 4200


@pytest.fixture
def granted(make_host):
    """Load CALLS with a grant."""
    return lambda **grant: make_host(wasi=WasiGrant(**grant)).load(CALLS, name="wasi")


def clock(userdata, nanoseconds, number=1, flags=0):
    return struct.pack("<QB7xI4xQQH6x", userdata, 0, number, nanoseconds, 0, flags)


def descriptor(userdata, tag, number):
    return struct.pack("<QB7xI28x", userdata, tag, number)


def polled(guest, *subscriptions):
    """The code, and of each event the userdata, the error and the tag."""
    guest.write_memory(0, b"".join(subscriptions))
    code = guest.call("poll", len(subscriptions))
    count = int.from_bytes(guest.read_memory(1020, 4), "little") if code == SUCCESS else 0
    events = [struct.unpack_from("<QHB", guest.read_memory(512 + 32 * i, 32)) for i in range(count)]
    return code, events


def opened(guest, path, rights, flags=0):
    """The errno, and the descriptor."""
    guest.write_memory(TEXT, path.encode())
    return guest.call("open", len(path.encode()), flags, rights), guest.call("opened")


# Command modules.


def test_a_command_runs_with_arguments_input_and_output(make_host):
    out, err = [], []
    grant = WasiGrant(
        arguments=("command", "3", "20"),
        stdin=b"a line\nanother\n",
        stdout=out.append,
        stderr=err.append,
    )
    guest = make_host(wasi=grant).load(GUESTS / "wasi_command.wasm")

    assert guest.info.kind is ModuleKind.WASI_COMMAND
    assert guest.run_command() == 3
    assert b"".join(out).decode().splitlines() == [
        "hello from a WASI command",
        "argument 3",
        "argument 20",
        "read a line",
        "goodbye",
    ]
    assert err == []


def test_a_command_without_arguments_ends_with_status_zero(make_host):
    out = []
    guest = make_host(wasi=WasiGrant(stdout=out.append)).load(GUESTS / "wasi_command.wasm")

    assert guest.run_command() == 0
    assert b"".join(out) == b"hello from a WASI command\ngoodbye\n"


def test_without_callbacks_output_goes_to_the_hosts_own_streams():
    script = f"""
from arkml import Host
from arkml.runtime.wasi.linking import WasiGrant
with Host(wasi=WasiGrant(arguments=("command", "4"))) as host:
    status = host.load({str(GUESTS / "wasi_command.wasm")!r}).run_command()
raise SystemExit(status)
"""
    run = python(script)

    assert run.stdout == "hello from a WASI command\nargument 4\ngoodbye\n"
    assert (run.stderr, run.returncode) == ("", 4)


def test_a_command_needs_the_grant(host):
    with pytest.raises(LinkError, match="WASI is not granted"):
        host.load(GUESTS / "wasi_command.wasm")


@pytest.mark.parametrize("status", [0, 3, 125])
def test_every_exit_status_arrives(granted, status):
    guest = granted()
    with pytest.raises(GuestExit) as error:
        guest.call("exit", status)

    assert error.value.status == status
    assert calls_of(guest).services.live_handles == 0


@pytest.mark.parametrize("status", [126, 255, 1000, 0x7FFF_FFFF, 0xFFFF_FFFF])
def test_an_exit_status_that_no_process_has_is_an_error(granted, status):
    guest = granted()
    with pytest.raises(GuestError, match="exit"):
        guest.call("exit", status)

    assert guest.failure is not None


# What a guest is told of the host.


@pytest.mark.parametrize(
    "make",
    [
        lambda text: WasiGrant(arguments=("command", text)),
        lambda text: WasiGrant(environment={"FISH": text}),
        lambda text: WasiGrant(environment={text: "cod"}),
        lambda text: Directory(text, "/data"),
        lambda text: Directory("/data", text),
    ],
)
def test_a_grant_has_texts_that_are_utf_8(make):
    with pytest.raises(UsageError, match=r"U\+DCFF in it is not a character"):
        make("a\udcff")


def test_arguments_and_environment_are_those_of_the_grant(granted):
    guest = granted(arguments=("npc", "ä b"), environment={"FISH": "cod", "NET": ""})

    assert guest.read_memory(TEXT, guest.call("arguments")) == "npc\0ä b\0".encode()
    size = guest.call("environment")
    assert guest.read_memory(TEXT, size) == b"FISH=cod\0NET=\0"


def test_nothing_of_the_host_is_granted_by_default(granted):
    guest = granted()

    assert guest.call("arguments") == 0
    assert guest.call("environment") == 0
    assert guest.call("prestat") == BADF
    assert guest.call("read", 0, 10) == SUCCESS
    assert guest.read_memory(4104, 4) == bytes(4)  # the end of its input


def test_clocks_tell_the_time_and_random_numbers_differ(granted):
    guest = granted()
    before, now = time.time_ns(), guest.call("clock", 0)
    first = guest.call("clock", 1)
    guest.call("random")
    drawn = [guest.read_memory(0, 32)]
    guest.call("random")
    drawn.append(guest.read_memory(0, 32))

    assert before <= now <= time.time_ns()
    assert guest.call("clock", 1) > first
    assert drawn[0] != drawn[1] != bytes(32)


# Standard streams.


def test_input_is_read_piece_by_piece_to_its_end(granted):
    guest = granted(stdin=b"abcdefgh")
    read = []
    for _ in range(4):
        assert guest.call("read", 0, 3) == SUCCESS
        size = int.from_bytes(guest.read_memory(4104, 4), "little")
        read.append(guest.read_memory(BUFFER, size))

    assert read == [b"abc", b"def", b"gh", b""]


def test_input_is_spread_over_the_buffers_of_a_call(granted):
    guest = granted(stdin=b"abcdefgh")
    guest.write_memory(0, np.array([100, 2, 200, 0, 300, 9], "<u4").tobytes())

    assert guest.call("read_at", 0, 0, 3, 64) == SUCCESS
    assert guest.read_memory(64, 4) == b"\x08\0\0\0"
    assert guest.read_memory(100, 3) == b"ab\0"
    assert guest.read_memory(300, 7) == b"cdefgh\0"


def test_waiting_for_input_from_a_pipe_costs_no_time_and_can_be_long(granted):
    reader, writer = os.pipe()
    with open(reader, "rb", buffering=0) as source:  # noqa: PTH123  a descriptor
        guest = granted(stdin=source)
        threading.Timer(0.15, lambda: (os.write(writer, b"late"), os.close(writer))).start()
        code = guest.call("read", 0, 100, budget=0.05)
        first = guest.read_memory(BUFFER, 4)
        assert guest.call("read", 0, 100) == SUCCESS
        end = guest.read_memory(4104, 4)

    assert (code, first, end) == (SUCCESS, b"late", bytes(4))
    assert guest.account.run_seconds < 0.05


def test_output_goes_to_the_callbacks_as_it_is_written(granted):
    out, err = [], []
    guest = granted(stdout=out.append, stderr=err.append)
    guest.write_memory(BUFFER, b"\x1b[2Jraw\0")
    for number in (1, 2, 1):
        assert guest.call("write", number, 8) == SUCCESS
        assert guest.read_memory(4104, 4) == b"\x08\0\0\0"

    assert out == [b"\x1b[2Jraw\0"] * 2
    assert err == [b"\x1b[2Jraw\0"]


@pytest.mark.parametrize("call", ["read_at", "write_at"])
def test_bad_pointers_and_descriptors_are_refused(granted, call):
    guest = granted(stdin=b"abcdefgh", stdout=lambda _: None)
    number = 0 if call == "read_at" else 1
    guest.write_memory(0, np.array([100, 4, 0xFFFF_FFF0, 100], "<u4").tobytes())

    assert guest.call(call, number, 0, 2, 64) == FAULT  # the second buffer
    assert guest.call(call, number, 0, 1, -2) == FAULT  # where the count goes
    assert guest.call(call, number, -8, 2, 64) == FAULT  # the list itself
    assert guest.call(call, number, 0, -1, 64) in (FAULT, INVAL)
    assert guest.call(call, 1 - number, 0, 1, 64) == BADF
    assert guest.call(call, 77, 0, 1, 64) == BADF
    assert guest.call(call, number, 0, 1, 64) == SUCCESS


def test_a_callback_that_raises_is_an_error_of_the_call_and_not_of_the_process(granted, caplog):
    def full(_data):
        raise OSError("no space left")

    guest = granted(stdout=full)

    assert guest.call("write", 1, 4) != SUCCESS
    assert "no space left" in caplog.text
    assert guest.failure is None


def test_output_that_is_lost_again_and_again_is_told_once_a_descriptor(granted, caplog):
    def full(_data):
        raise OSError("no space left")

    guest = granted(stdout=full, stderr=full)
    for _ in range(3):
        guest.call("write", 1, 4)
        guest.call("write", 2, 4)

    assert [line for line in caplog.messages if "is lost" in line] == [
        f"output of a guest to descriptor {number} is lost: no space left" for number in (1, 2)
    ]


class TextOnly:
    """A stream that has no bytes and no descriptor, as those of notebooks and of IDLE."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"{type(text).__name__} is not text")
        self.text += text


@pytest.mark.parametrize(("number", "name"), [(1, "stdout"), (2, "stderr")])
def test_output_goes_to_the_streams_of_the_program_as_they_are_when_it_is_written(
    granted, monkeypatch, tmp_path, number, name
):
    guest = granted()
    guest.write_memory(BUFFER, b"abc \xc3")
    text, binary = TextOnly(), io.TextIOWrapper(io.BytesIO())
    binary.write("before ")
    file = (tmp_path / "out").open("w+b", buffering=0)
    codes = []
    for stream in (text, None, binary, io.TextIOWrapper(file, write_through=True)):
        monkeypatch.setattr(sys, name, stream)
        codes.append(guest.call("write", number, 5))
    monkeypatch.setattr(sys, name, text)
    guest.write_memory(BUFFER, b"\xbc d \xff")
    codes.append(guest.call("write", number, 5))
    file.seek(0)

    assert codes == [SUCCESS] * 5
    assert text.text == "abc ü d \ufffd"
    assert binary.buffer.getvalue() == b"before abc \xc3"
    assert file.read() == b"abc \xc3"
    file.close()


class OddBuffer(TextOnly):
    """A stream of text whose `buffer` is of no use."""

    def __init__(self, buffer):
        super().__init__()
        self._buffer = buffer

    @property
    def buffer(self):
        if isinstance(self._buffer, Exception):
            raise self._buffer
        return self._buffer

    def flush(self):
        pass


@pytest.mark.parametrize(
    "buffer", [io.UnsupportedOperation("buffer"), ValueError("detached"), io.StringIO(), TextOnly()]
)
def test_output_goes_to_a_stream_of_text_whose_buffer_takes_no_bytes(granted, monkeypatch, buffer):
    guest, stream = granted(), OddBuffer(buffer)
    guest.write_memory(BUFFER, b"abc \xc3\xbc")
    monkeypatch.setattr(sys, "stdout", stream)

    assert guest.call("write", 1, 5) == SUCCESS
    guest.write_memory(BUFFER, b"\xbc")
    assert guest.call("write", 1, 1) == SUCCESS
    assert stream.text == "abc ü"


def test_output_goes_to_a_stream_of_bytes_that_has_no_buffer(granted, monkeypatch):
    guest, stream, text = granted(), io.BytesIO(), TextOnly()
    guest.write_memory(BUFFER, b"abc \xc3")

    for out in (stream, stream, text):
        monkeypatch.setattr(sys, "stdout", out)
        assert guest.call("write", 1, 5) == SUCCESS
    assert stream.getvalue() == 2 * b"abc \xc3"
    assert text.text == "abc "


def _closed():
    stream = io.StringIO()
    stream.close()
    return stream


def _detached():
    stream = io.TextIOWrapper(io.BytesIO())
    stream.detach()
    return stream


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (_closed(), "ValueError: I/O operation on closed file"),
        (_detached(), "ValueError: underlying buffer has been detached"),
        (object(), "AttributeError: 'object' object has no attribute 'write'"),
    ],
)
def test_output_to_a_stream_that_cannot_be_written_is_an_error_of_the_call(
    granted, monkeypatch, caplog, stream, reason
):
    guest = granted()
    monkeypatch.setattr(sys, "stdout", stream)
    codes = [guest.call("write", 1, 4) for _ in range(2)]

    assert codes == [IO, IO]
    assert caplog.messages == [f"output of a guest to descriptor 1 is lost: {reason}"]
    assert guest.failure is None


@pytest.mark.parametrize("out", [None, TextOnly(), _closed()])
def test_guests_load_and_play_whatever_the_streams_of_the_program_are(monkeypatch, out):
    monkeypatch.setattr(sys, "stdin", out)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", out)
    with Host(seed=7) as host:
        host.load(GUESTS / "c_applet.wasm").update()
        host.fleet(GUESTS / "c_applet.wasm", 2).update()
    with Host(wasi=WasiGrant()) as host:
        host.load(GUESTS / "wasi_command.wasm").close()
    with GuestEnv(GUESTS / "c_pendulum.wasm", configure=(2, 1)) as env:
        decisions = env.reset(seed=1).decisions

    assert len(decisions[0].observations) == 2


@pytest.mark.parametrize(
    ("grant", "reason"),
    [
        ({"stdin": io.StringIO("text")}, "stdin is .*StringIO.*: it takes bytes or a file opened"),
        ({"stdin": None}, "stdin is None"),
        ({"stdin": "text"}, "stdin is 'text'"),
        ({"stdout": io.BytesIO()}, r"stdout is .*BytesIO.*: it takes a function of bytes"),
        ({"stderr": "log.txt"}, r"stderr is 'log.txt'"),
    ],
)
def test_a_grant_refuses_streams_of_another_kind(grant, reason):
    with pytest.raises(UsageError, match=reason):
        WasiGrant(**grant)


@pytest.mark.parametrize("kind", [bytearray, memoryview, io.BytesIO])
def test_input_is_any_kind_of_bytes_or_a_file_of_them(granted, kind):
    guest = granted(stdin=kind(b"abcdefgh"))

    assert guest.call("read", 0, 4) == SUCCESS
    assert guest.read_memory(BUFFER, 4) == b"abcd"


def test_input_that_cannot_be_read_is_an_error_of_the_call(granted, caplog):
    stream = io.BytesIO(b"abcd")
    guest = granted(stdin=stream)
    stream.close()

    assert guest.call("read", 0, 4) == IO
    assert caplog.messages == [
        "standard input cannot be read: ValueError: I/O operation on closed file."
    ]


# Waiting.


def test_a_sleep_lasts_as_long_as_was_asked(granted):
    guest = granted()
    started = time.perf_counter()
    code, events = polled(guest, clock(0xABCDEF01_23456789, 60_000_000))

    assert time.perf_counter() - started >= 0.06
    assert (code, events) == (SUCCESS, [(0xABCDEF01_23456789, 0, 0)])


@pytest.mark.parametrize("number", [0, 1])
def test_a_sleep_until_a_time_ends_at_that_time(granted, number):
    guest = granted()
    until = guest.call("clock", number) + 60_000_000
    code, events = polled(guest, clock(5, until, number, flags=1))

    assert (code, events) == (SUCCESS, [(5, 0, 0)])
    assert until <= guest.call("clock", number)
    in_the_past, never = clock(5, 1, number, flags=1), clock(6, 10**12)
    assert polled(guest, in_the_past, never) == (SUCCESS, [(5, 0, 0)])


def test_the_first_of_several_events_ends_the_wait(granted):
    code, events = polled(granted(), clock(1, 10**12), clock(2, 30_000_000), clock(3, 10**12))

    assert (code, events) == (SUCCESS, [(2, 0, 0)])


def test_output_is_always_ready(granted):
    code, events = polled(granted(), clock(1, 10**12), descriptor(2, 2, 1), descriptor(3, 2, 2))

    assert (code, events) == (SUCCESS, [(2, 0, 2), (3, 0, 2)])


def test_input_wakes_a_guest_that_waits_for_it(granted):
    reader, writer = os.pipe()
    with open(reader, "rb", buffering=0) as source:  # noqa: PTH123  a descriptor
        guest = granted(stdin=source)
        code, events = polled(guest, clock(1, 20_000_000), descriptor(2, 1, 0))
        assert (code, events) == (SUCCESS, [(1, 0, 0)])
        threading.Timer(0.05, os.write, (writer, b"now")).start()
        code, events = polled(guest, clock(1, 10**12), descriptor(2, 1, 0))
        assert guest.call("read", 0, 10) == SUCCESS
        os.close(writer)

    assert (code, events) == (SUCCESS, [(2, 0, 1)])
    assert guest.read_memory(BUFFER, 3) == b"now"


def test_wrong_subscriptions_are_refused(granted):
    guest = granted()

    assert guest.call("poll", 0) == INVAL
    assert guest.call("poll", 100_000_000) in (INVAL, FAULT)
    assert polled(guest, clock(1, 5, number=9))[0] == INVAL
    assert polled(guest, descriptor(1, 7, 0))[0] == INVAL
    assert guest.failure is None


def test_waiting_for_a_file_does_not_wait_for_input(granted, tree):
    """A file is always ready, however silent the standard input is."""
    reader, writer = os.pipe()
    with open(reader, "rb", buffering=0) as source:  # noqa: PTH123  a descriptor
        guest = granted(stdin=source, directories=(Directory(str(tree), "/data"),))
        _, number = opened(guest, "fish.txt", READ)
        code, events = polled(guest, descriptor(4, 1, number), clock(1, 10**12))
    os.close(writer)

    assert (code, events) == (SUCCESS, [(4, 0, 1)])


def test_yielding_lets_the_guest_go_on(granted):
    guest = granted()

    assert [guest.call("yield") for _ in range(200)] == [SUCCESS] * 200


def test_a_sleeping_guest_does_not_use_up_its_budget(granted):
    assert granted().call("sleep", 120_000_000, budget=0.05) == SUCCESS


def test_a_guest_that_only_yields_runs_into_the_deadline(make_host):
    guest = make_host(wasi=WasiGrant()).load(
        module(
            function("yield_for_ever", "(loop $more (drop (call $sched_yield)) (br $more))"),
            imports=(wasi("sched_yield", ""),),
        )
    )
    with pytest.raises(GuestTimeout, match=r"over its budget of 0\.02 s"):
        guest.call("yield_for_ever", budget=0.02)


async def test_others_run_while_a_guest_sleeps(granted):
    guest = granted()
    sleeping = asyncio.create_task(guest.call_async("sleep", 10**12))
    for _ in range(5):
        await asyncio.sleep(0.005)

    assert not sleeping.done()
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping


async def test_a_sleep_can_be_cancelled(granted):
    guest = granted()
    task = asyncio.create_task(guest.call_async("sleep", 10**12))
    await asyncio.sleep(0.03)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert guest.failure is not None
    guest.close()


def test_two_guests_sleep_at_the_same_time_on_two_threads(make_host, on_thread):
    host = make_host(wasi=WasiGrant())
    guests = [host.load(SLEEPER), host.load(SLEEPER)]
    running = [
        on_thread(lambda guest=guest: guest.call("sleep_long"), announced=True) for guest in guests
    ]
    for guest in guests:
        guest.cancel()

    assert [type(one.result()) for one in running] == [GuestCancelled] * 2


# Directories.


@pytest.fixture
def tree(tmp_path):
    """A granted folder with a file, links out of it, and a secret beside it."""
    inside, outside = tmp_path / "granted", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "fish.txt").write_text("cod")
    (outside / "secret.txt").write_text("secret")
    (inside / "link.txt").symlink_to(outside / "secret.txt")
    (inside / "up").symlink_to("..")
    (inside / "away").symlink_to(outside)
    (inside / "near.txt").symlink_to("fish.txt")
    return inside


def contents(guest, path):
    code, number = opened(guest, path, READ)
    assert code == SUCCESS
    assert guest.call("read", number, 100) == SUCCESS
    return guest.read_memory(BUFFER, int.from_bytes(guest.read_memory(4104, 4), "little"))


@pytest.mark.parametrize("writable", [False, True])
def test_files_of_a_granted_directory_can_be_read(granted, tree, writable):
    guest = granted(directories=(Directory(str(tree), "/data", writable),))

    assert guest.call("prestat") == SUCCESS
    assert contents(guest, "fish.txt") == b"cod"
    assert contents(guest, "near.txt") == b"cod"


def test_a_writable_directory_can_be_written(granted, tree):
    guest = granted(directories=(Directory(str(tree), "/data", writable=True),))
    code, number = opened(guest, "new.txt", READ | WRITE, CREATE)
    guest.write_memory(BUFFER, b"perch")

    assert code == SUCCESS
    assert guest.call("write", number, 5) == SUCCESS
    assert (tree / "new.txt").read_text() == "perch"


def test_a_directory_is_read_only_unless_it_is_granted_otherwise(granted, tree):
    guest = granted(directories=(Directory(str(tree), "/data"),))
    before = sorted(path.name for path in tree.iterdir())

    assert opened(guest, "new.txt", READ | WRITE, CREATE)[0] != SUCCESS
    assert opened(guest, "fish.txt", READ | WRITE, 8)[0] != SUCCESS  # truncate
    code, number = opened(guest, "fish.txt", READ | WRITE)
    assert code != SUCCESS or guest.call("write", number, 4) != SUCCESS
    assert sorted(path.name for path in tree.iterdir()) == before
    assert (tree / "fish.txt").read_text() == "cod"


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret.txt",
        "up/outside/secret.txt",
        "away/secret.txt",
        "link.txt",
        "/etc/passwd",
        "./../outside/secret.txt",
        "fish.txt/../../outside/secret.txt",
        "..",
        "up",
    ],
)
@pytest.mark.parametrize("writable", [False, True])
def test_no_path_leads_out_of_a_granted_directory(granted, tree, path, writable):
    guest = granted(directories=(Directory(str(tree), "/data", writable),))

    assert opened(guest, path, READ)[0] != SUCCESS
    assert opened(guest, path, READ | WRITE, CREATE)[0] != SUCCESS
    assert (tree.parent / "outside" / "secret.txt").read_text() == "secret"


@pytest.fixture
def with_specials(tree):
    """The granted folder with a pipe that nothing else opens, links to it, and a socket."""
    os.mkfifo(tree / "pipe")
    (tree / "to_pipe").symlink_to("pipe")
    (tree / "to_link").symlink_to("to_pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tree / "socket"))
    return tree


@pytest.mark.parametrize("rights", [0, READ, WRITE, READ | WRITE])
@pytest.mark.parametrize("path", ["pipe", "to_pipe", "to_link", "socket", "up/granted/pipe"])
def test_pipes_and_sockets_are_not_opened(granted, with_specials, path, rights):
    """wasmtime would wait, beyond all limits, until another process opens the pipe, too."""
    guest = granted(directories=(Directory(str(with_specials), "/data", writable=True),))
    refused = NOT_SUPPORTED if "up" not in path else 63  # `perm`: the path leads out in between

    assert opened(guest, path, rights)[0] == refused
    assert opened(guest, path, rights, CREATE)[0] == refused
    assert contents(guest, "fish.txt") == b"cod"


def test_devices_are_not_opened(granted):
    guest = granted(directories=(Directory("/dev", "/dev"),))

    assert opened(guest, "zero", READ)[0] == NOT_SUPPORTED


def test_times_of_pipes_are_not_set(granted, with_specials):
    """wasmtime opens what it sets the times of."""
    guest = granted(directories=(Directory(str(with_specials), "/data", writable=True),))
    codes = []
    for path in ("pipe", "to_pipe", "fish.txt"):
        guest.write_memory(TEXT, path.encode())
        codes.append(guest.call("touch", len(path), 1))

    assert codes == [NOT_SUPPORTED, NOT_SUPPORTED, SUCCESS]
    assert (with_specials / "fish.txt").stat().st_mtime == 0


def test_opening_a_file_leaves_the_memory_of_the_guest_as_it_was(granted, tree):
    """The type of the file is read through the first bytes of the guest's memory."""
    guest = granted(directories=(Directory(str(tree), "/data"),))
    before = bytes(range(1, 101))
    guest.write_memory(0, before)

    assert opened(guest, "fish.txt", READ)[0] == SUCCESS
    assert guest.read_memory(0, 100) == before


def test_a_directory_that_is_not_there_is_told(make_host, tmp_path):
    grant = WasiGrant(directories=(Directory(str(tmp_path / "gone"), "/data"),))
    host = make_host(wasi=grant)
    with pytest.raises(UsageError, match="gone"):
        host.load(CALLS)


def test_a_file_is_not_mistaken_for_a_standard_stream(granted, tree):
    """Descriptor 3 and up are wasmtime's, 0 to 2 are ours, in one guest."""
    out = []
    grant = Directory(str(tree), "/data", writable=True)
    guest = granted(directories=(grant,), stdin=b"typed", stdout=out.append)
    read = contents(guest, "fish.txt")
    guest.call("read", 0, 5)
    typed = guest.read_memory(BUFFER, 5)
    guest.call("write", 1, 5)

    assert (read, typed, out) == (b"cod", b"typed", [b"typed"])


def test_guests_with_and_without_wasi_live_in_one_host(make_host):
    host = make_host(wasi=WasiGrant())
    sleeper, actor = host.load(CALLS), host.load(ACTOR)

    assert actor.call("answer") == 42
    assert sleeper.call("sleep", 1_000_000) == SUCCESS
    assert_host_works(host)


def test_each_guest_has_its_own_input_position(make_host):
    """Bytes are copied for each guest; the grant is not used up by the first."""
    host = make_host(wasi=WasiGrant(stdin=b"abc"))
    texts = []
    for _ in range(2):
        guest = host.load(CALLS)
        assert guest.call("read", 0, 3) == SUCCESS
        texts.append(guest.read_memory(BUFFER, 3))

    assert texts == [b"abc", b"abc"]


def test_an_exit_says_which_status_in_a_sentence(granted):
    with pytest.raises(GuestExit, match="wasi exited with status 3"):
        granted().call("exit", 3)
