import logging
import os
import pickle
import subprocess
import sys

import pytest
import wasmtime
from tests.integration.callback_policy import assert_host_works
from tests.integration.guest_text import (
    ACTOR,
    GUESTS,
    LOG,
    PANIC,
    ROOT,
    SLEEPER,
    data,
    function,
    i32,
    logging_of,
    module,
    wasi,
)

from arkml import GuestEnv, Host, Limits, WasiGrant
from arkml.errors import (
    ArkmlError,
    EntryPointMissing,
    GuestError,
    GuestExit,
    GuestFailed,
    GuestTimeout,
    GuestTrap,
    ModuleError,
    StackExhausted,
)
from arkml.guests.guest import calls_of

TRAPS = {
    "unreachable": ("unreachable", "unreachable"),
    "division": ("(drop (i32.div_s (i32.const 1) (i32.const 0)))", "integer division by zero"),
    "overflow": (
        "(drop (i32.div_s (i32.const 0x80000000) (i32.const -1)))",
        "integer overflow",
    ),
    "conversion": (
        "(drop (i32.trunc_f32_s (f32.const nan)))",
        "bad conversion to integer",
    ),
    "memory": ("(drop (i32.load (i32.const 0x7fffffff)))", "memory out of bounds"),
    "wrapping": ("(drop (i32.load offset=0xffffffff (i32.const -1)))", "memory out of bounds"),
    "filling": (
        "(memory.fill (i32.const 65535) (i32.const 0) (i32.const 2))",
        "memory out of bounds",
    ),
    "table": ("(call_indirect $table (i32.const 9))", "table out of bounds"),
    "null": ("(call_indirect $table (i32.const 0))", "indirect call to null"),
    "signature": ("(drop (call_indirect $table (result i32) (i32.const 1)))", "bad signature"),
}


def panicking(message, file, line=7, column=3):
    """A guest whose `fail` registers a panic and traps, as Rust guests do."""
    text, place = message.encode(), file.encode()
    return module(
        data(1000, text),
        data(5000, place),
        function(
            "fail",
            f"(drop (call ${PANIC} {i32(1000)} {i32(len(text))} {i32(5000)} {i32(len(place))}"
            f" {i32(line)} {i32(column)})) unreachable",
        ),
        function("answer", i32(42), result="i32"),
        uses=(PANIC,),
    )


@pytest.mark.parametrize("name", TRAPS)
def test_a_trap_says_what_happened_and_in_which_function(host, name):
    body, code = TRAPS[name]
    guest = host.load(
        module(
            "(table $table 2 funcref) (elem (i32.const 1) $outer)",
            f"(func $innermost {body})",
            function("outer", "(call $innermost)"),
        ),
        name="npc.wasm",
    )
    with pytest.raises(GuestTrap) as error:
        guest.call("outer")

    assert code in error.value.code
    assert [frame.function for frame in error.value.frames] == ["innermost", "outer"]
    assert error.value.panic is None
    assert str(error.value).startswith("npc.wasm trapped: ")
    assert "innermost" in str(error.value)


def test_a_stack_that_is_used_up_has_an_error_of_its_own(host):
    guest = host.load(ACTOR)
    with pytest.raises(StackExhausted, match="recurse") as error:
        guest.call("recurse")

    assert error.value.code == "stack overflow"
    assert "more than Limits.wasm_stack, or have no end" in str(error.value)


def test_frames_of_functions_without_names_show_their_numbers(host):
    guest = host.load(module('(func unreachable) (func (export "f") (call 0))'))
    with pytest.raises(GuestTrap) as error:
        guest.call("f")

    assert [frame.function for frame in error.value.frames] == ["function 0", "f"]
    assert all(frame.offset > 0 for frame in error.value.frames)


def test_frames_of_the_host_are_not_shown_as_the_guests(host):
    """A trap in `env.abort` happens in a frame of ours."""
    guest = host.load(GUESTS / "as_abort.wasm")
    for _ in range(2):
        guest.update()
    with pytest.raises(GuestTrap) as error:
        guest.update()

    assert any("ark_applet_update" in frame.function for frame in error.value.frames)
    assert not any("ark-" in frame.function for frame in error.value.frames)


def test_a_trap_names_the_file_that_the_guest_came_from(host, tmp_path):
    path = tmp_path / "fish.wasm"
    path.write_bytes(ACTOR)
    guest = host.load(path)
    with pytest.raises(GuestTrap, match=r"^fish\.wasm trapped"):
        guest.call("boom")


def test_a_panic_is_shown_with_its_message_and_place(host):
    guest = host.load(panicking("no fish left", "src/lake.rs"), name="fish.wasm")
    with pytest.raises(GuestTrap) as error:
        guest.call("fail")

    assert "no fish left" in error.value.panic
    assert "src/lake.rs:7:3" in error.value.panic
    assert str(error.value).startswith("fish.wasm panicked: no fish left")
    assert "fail" in str(error.value)  # the backtrace
    assert error.value.code == "unreachable"


def test_a_panic_is_logged_once_under_the_guests_name(host, caplog):
    guest = host.load(panicking("no fish left", "src/lake.rs"), name="fish.wasm")
    with pytest.raises(GuestTrap):
        guest.call("fail")
    (record,) = [r for r in caplog.records if "no fish left" in r.getMessage()]

    assert record.name == "arkml.guest.fish.wasm"
    assert record.levelno == logging.ERROR


def test_a_panic_of_odd_text_cannot_write_to_a_terminal(host):
    guest = host.load(panicking("\x1b[2Jgone\x07\x00", "\x1b]0;title\x07.rs"))
    with pytest.raises(GuestTrap) as error:
        guest.call("fail")

    assert "\x1b" not in str(error.value)
    assert "\x07" not in str(error.value)
    assert "gone" in str(error.value)


def test_a_panic_of_an_earlier_call_is_not_told_again(host):
    guest = host.load(
        module(
            data(1000, b"old news"),
            function("note", f"(drop (call ${PANIC} {i32(1000)} {i32(8)} {i32(0)} {i32(0)}"
                     f" {i32(1)} {i32(1)}))"),
            function("boom", "unreachable"),
            uses=(PANIC,),
        )
    )  # fmt: skip
    guest.call("note")
    with pytest.raises(GuestTrap) as error:
        guest.call("boom")

    assert error.value.panic is None
    assert "old news" not in str(error.value)


def test_a_panic_with_pointers_out_of_memory_is_still_a_trap(host):
    guest = host.load(
        module(
            function("fail", f"(drop (call ${PANIC} {i32(-8)} {i32(100)} {i32(-8)} {i32(100)}"
                     f" {i32(1)} {i32(1)})) unreachable"),
            uses=(PANIC,),
        )
    )  # fmt: skip
    with pytest.raises(GuestTrap, match="unreachable"):
        guest.call("fail")


@pytest.mark.parametrize("guest_file", ["c_kinds.wasm", "rust_cmdlet.wasm"])
def test_a_panic_of_a_compiled_guest_is_shown(host, guest_file):
    guest = host.load(GUESTS / guest_file)
    with pytest.raises(GuestTrap, match=r"panicked: .*too many fish"):
        guest.run_cmdlet("panic too many fish")

    assert "too many fish" in guest.failure.panic


def test_an_assertion_of_assembly_script_is_a_panic(host):
    guest = host.load(GUESTS / "as_abort.wasm")
    guest.update()
    guest.update()
    with pytest.raises(GuestTrap) as error:
        guest.update()

    assert "frame 3 is too much: åäö ✓" in error.value.panic
    assert "abort.ts:7:" in error.value.panic
    assert str(error.value).startswith("as_abort.wasm panicked: frame 3")


@pytest.mark.parametrize("arguments", [(0, 0), (-1, -1), (3, 2), (65534, 65535)])
def test_an_abort_with_bad_pointers_is_a_panic_without_text(host, arguments):
    guest = host.load(
        module(
            function("fail", f"(call $abort {i32(arguments[0])} {i32(arguments[1])} {i32(9)}"
                     f" {i32(4)})"),
            imports=('(import "env" "abort" (func $abort (param i32 i32 i32 i32)))',),
        )
    )  # fmt: skip
    with pytest.raises(GuestTrap) as error:
        guest.call("fail")

    assert error.value.panic == "panic without a message"


def test_code_after_an_abort_is_never_reached(host):
    text, say = logging_of("still here")
    guest = host.load(
        module(
            text,
            function("fail", f"(call $abort {i32(0)} {i32(0)} {i32(1)} {i32(1)}) {say}"),
            uses=(LOG,),
            imports=('(import "env" "abort" (func $abort (param i32 i32 i32 i32)))',),
        )
    )
    with pytest.raises(GuestTrap):
        guest.call("fail")


def test_a_trapped_guest_refuses_calls_and_its_handles_are_freed(host):
    guest = host.load(ACTOR)
    guest.call("open")
    guest.call("connect")
    assert (calls_of(guest).services.live_handles, calls_of(guest).services.live_futures) == (1, 1)
    with pytest.raises(GuestTrap) as error:
        guest.call("push_then_boom")

    assert guest.failure is error.value
    assert (calls_of(guest).services.live_handles, calls_of(guest).services.live_futures) == (0, 0)
    for work in (
        lambda: guest.call("answer"),
        lambda: guest.call("no such function"),
        guest.update,
    ):
        with pytest.raises(GuestFailed, match="failed before"):
            work()


def test_other_guests_of_the_module_go_on(host):
    program = host.compile(ACTOR)
    good, bad = host.load(program), host.load(program)
    for guest in (good, bad):
        assert guest.call("open") == 0
    assert good.call("push_many", 2) == 0
    with pytest.raises(GuestTrap):
        bad.call("push_then_boom")

    assert good.call("submit", 2) == 0
    assert_host_works(host)


def test_an_error_of_the_caller_does_not_fail_the_guest(host):
    guest = host.load(ACTOR)
    for work in (
        lambda: guest.call("nothing of that name"),
        lambda: guest.call("answer", 1),
        lambda: guest.call("burn", "many"),
        lambda: guest.run_cmdlet("words"),
        guest.persist,
    ):
        with pytest.raises(ArkmlError) as error:
            work()
        assert not isinstance(error.value, GuestFailed)

    assert guest.failure is None
    assert guest.call("answer") == 42


def test_a_trap_in_the_start_function_is_told_by_load(host):
    broken = module("(func $begin unreachable) (start $begin)")
    with pytest.raises(GuestTrap, match=r"broken\.wasm trapped: .*unreachable"):
        host.load(broken, name="broken.wasm")

    assert_host_works(host)


def test_a_panic_in_an_initializer_is_told_by_load(host):
    guest = panicking("cannot begin", "a.rs").replace(b'(export "fail")', b'(export "_initialize")')
    with pytest.raises(GuestTrap, match="cannot begin"):
        host.load(guest)


@pytest.mark.parametrize(
    "segment",
    [
        '(data (i32.const 65535) "two")',
        "(table 1 funcref) (func $f) (elem (i32.const 1) $f)",
    ],
)
def test_a_segment_that_does_not_fit_is_one_of_our_errors(host, segment):
    for _ in range(3):
        with pytest.raises((ModuleError, GuestError), match="broken"):
            host.load(module(segment), name="broken.wasm")

    assert_host_works(host)


def test_a_trap_is_no_timeout_and_a_timeout_no_trap(host):
    guest = host.load(ACTOR)
    with pytest.raises(GuestTimeout) as error:
        guest.call("spin", budget=0.02)

    assert not isinstance(error.value, GuestTrap)
    assert guest.failure is error.value


SPINNING = module(
    function("inner", "(loop $more (br $more))"),
    function("outer", "(call $inner)"),
    function("ark_applet_update", "(call $outer)"),
    function(
        "fill",
        "(loop $more (memory.fill (i32.const 0) (i32.const 7) (i32.const 65536)) (br $more))",
    ),
)


@pytest.mark.parametrize(
    ("entry", "frames"),
    [("outer", ["inner", "outer"]), ("inner", ["inner"]), ("fill", ["fill"])],
)
def test_a_budget_names_the_function_in_which_it_struck(host, entry, frames):
    guest = host.load(SPINNING, name="spinning.wasm")
    with pytest.raises(GuestTimeout, match=r"over its budget of 0\.05 s\n  0: ") as error:
        guest.call(entry, budget=0.05)

    assert [frame.function for frame in error.value.frames] == frames
    assert {frame.module for frame in error.value.frames} == {"spinning.wasm"}
    assert all(f"{frame.function} (offset {frame.offset:#x})" in str(error.value)
               for frame in error.value.frames)  # fmt: skip
    assert pickle.loads(pickle.dumps(error.value)).frames == error.value.frames
    assert_host_works(host)


def test_a_budget_names_the_function_in_fleets_and_in_environments_too(host):
    fleet = host.fleet(SPINNING, 3)
    errors = fleet.update(budget=0.05)
    with (
        GuestEnv(SPINNING, limits=Limits(run_seconds=0.05)) as env,
        pytest.raises(GuestTimeout) as error,
    ):
        env.reset()

    for each in (*errors.values(), error.value):
        assert [one.function for one in each.frames] == ["inner", "outer", "ark_applet_update"]
    assert sorted(errors) == [0, 1, 2]


async def test_a_budget_names_the_function_of_a_call_beside_other_tasks(host):
    guest = host.load(SPINNING)
    with pytest.raises(GuestTimeout) as error:
        await guest.call_async("outer", budget=0.05)

    assert [frame.function for frame in error.value.frames] == ["inner", "outer"]


def test_a_budget_that_is_over_in_a_submit_names_the_function_that_submitted(host):
    guest = host.load(ACTOR)
    guest.call("open")
    with pytest.raises(GuestTimeout) as error:
        guest.call("submit_for_ever", budget=0.0)

    assert [frame.function for frame in error.value.frames] == ["submit_for_ever"]


FORMAT = "ark-time-v1.time__format_time_for_display"
OFTEN_SUSPENDED = module(
    "(type $bytes (array (mut i64))) (tag $thrown (param i32))"
    " (global $kept (mut (ref null $bytes)) (ref.null $bytes))",
    function("ask", f"(call ${FORMAT} (i64.const 0) (i32.const 64) (i32.const 128))"),
    function("asking", "(loop $more (call $ask) (br $more))"),
    function(
        "computing",
        """(local $count i32) (loop $again
          (call $ask)
          (local.set $count (i32.const 1000))
          (loop $more (br_if $more (local.tee $count (i32.sub (local.get $count) (i32.const 1)))))
          (br $again))""",
    ),
    function(
        "arrays",
        """(loop $more
          (global.set $kept (array.new_default $bytes (i32.const 100000)))
          (br $more))""",
    ),
    function(
        "exceptions",
        """(loop $more
          (block $caught (result i32)
            (try_table (catch $thrown $caught) (throw $thrown (i32.const 1)))
            (i32.const 0))
          (drop) (br $more))""",
    ),
    uses=(FORMAT,),
)


@pytest.mark.parametrize("entry", ["asking", "computing", "arrays", "exceptions"])
@pytest.mark.parametrize("size", [1, 2])
def test_a_budget_names_the_function_of_a_guest_that_is_often_suspended(host, entry, size):
    """It is not at the end of a turn when its budget is over, but in an import, or collecting."""
    fleet = host.fleet(OFTEN_SUSPENDED, size)
    errors = fleet.call(entry, budget=0.15).failures

    assert [type(error) for error in errors.values()] == [GuestTimeout] * size
    for error in errors.values():
        assert error.frames[-1].function == entry
        assert {frame.module for frame in error.frames} == {"guest"}


def test_a_wait_that_is_over_its_limit_has_no_frames(make_host):
    host = make_host(wasi=WasiGrant(), limits=Limits(call_seconds=0.05))
    with pytest.raises(GuestTimeout) as error:
        host.load(SLEEPER).call("sleep", 3_600_000_000_000)

    assert error.value.frames == ()
    assert "\n" not in str(error.value)


def test_names_of_functions_cannot_write_to_a_terminal(host):
    guest = host.load(
        module('(func $inner (@name "\\1b[2Jclear\\07") unreachable)',
               function("outer", "(call $inner)"))
    )  # fmt: skip
    with pytest.raises(GuestTrap) as error:
        guest.call("outer")

    assert "clear" in str(error.value)
    assert "\x1b" not in str(error.value)
    assert "\x07" not in str(error.value)


ODD = '(module $"module\\1b[31m" {} (func $"inner\\1b[2J\\07" {}) (func (export "outer") (call 0)))'
ENDS = {
    "a trap": ("", "unreachable", "unreachable"),
    "an exception": ("(tag $t)", "(throw $t)", "thrown Wasm exception"),
    "a full heap": (
        "(type $a (array (mut i8)))",
        "(drop (array.new $a (i32.const 7) (i32.const 0x70000000)))",
        "no room is left for its structs, arrays and exceptions",
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_whatever_ends_a_call_is_told_with_harmless_names_and_places_of_the_file(host, name):
    declared, code, reason = ENDS[name]
    data = bytes(wasmtime.wat2wasm(ODD.format(declared, code)))
    guest = host.load(data, name="odd.wasm")
    with pytest.raises(GuestTrap) as error:
        guest.call("outer")
    inner, outer = error.value.frames

    assert str(error.value).startswith(f"odd.wasm trapped: {reason}")
    for text in (str(error.value), repr(guest.failure), inner.function, inner.module):
        assert "\x1b" not in text
        assert "\x07" not in text
    assert "inner" in inner.function
    assert data[outer.offset] == 0x10  # call
    assert error.value.code


def test_a_trap_inside_nested_calls_shows_at_most_a_page_of_frames(host):
    guest = host.load(
        module(
            function(
                "dive",
                """(if (i32.eqz (local.get 0)) (then unreachable))
                (call $dive (i32.sub (local.get 0) (i32.const 1)))""",
                "(param i32)",
            )
        )
    )
    with pytest.raises(GuestTrap) as error:
        guest.call("dive", 2000)

    assert len(str(error.value).splitlines()) < 40
    assert error.value.frames[0].function == "dive"


@pytest.mark.parametrize("memory", ["", '(memory (export "memory") 1)', "(memory 1)"])
def test_offsets_of_frames_are_those_of_the_file(host, memory):
    text = f'(module {memory} (func $f (export "f") (call $g)) (func $g (drop (i32.div_s'
    data = bytes(wasmtime.wat2wasm(f"{text} (i32.const 1) (i32.const 0)))))"))
    with pytest.raises(GuestTrap) as error:
        host.load(data).call("f")
    inner, outer = (frame.offset for frame in error.value.frames)

    assert data[inner] == 0x6D  # i32.div_s
    assert data[outer] == 0x10  # call


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        (
            "_ZN4core9panicking5panic17h6ac9107c42850161E",
            "core::panicking::panic::h6ac9107c42850161",
        ),
        ("_RNvC3npc4swim", "npc::swim"),
        ("_ZN5World4swimEi", "World::swim(int)"),
        ("f", "f"),  # `float` where it is read as a type of C++
        ("Pv", "Pv"),
        ("swim", "swim"),
    ],
)
@pytest.mark.parametrize("named", [b"", b"$lake.wasm"], ids=["nameless", "named"])
def test_names_of_frames_are_demangled_and_others_left(host, named, mangled, name):
    code = [f"(func ${mangled} unreachable)", function("outer", f"(call ${mangled})")]
    guest = host.load(module(*code).replace(b"(module", b"(module " + named, 1))
    with pytest.raises(GuestTrap) as error:
        guest.call("outer")

    assert error.value.frames[0].function == name
    assert f"0: {name} (offset 0x" in str(error.value)


def test_a_frame_that_used_up_the_stack_has_no_offset(host):
    guest = host.load(
        module("(func $deep (call $deep) (call $deep))", function("f", "(call $deep)"))
    )
    with pytest.raises(StackExhausted) as error:
        guest.call("f")

    assert error.value.frames[0].offset is None
    assert "0xffffffff" not in str(error.value)
    assert "\n  0: deep\n  1: deep (offset 0x" in str(error.value)


def test_an_access_outside_of_the_memory_names_the_address(host):
    guest = host.load(module(function("f", "(drop (i32.load (i32.const 0xfffffff0)))")))

    with pytest.raises(GuestTrap, match="memory fault at wasm address 0xfffffff0 in linear memory"):
        guest.call("f")


def test_files_and_lines_are_told_where_wasmtime_is_asked_for_them():
    script = f"""
import arkml
with arkml.Host() as host:
    try:
        host.load({str(GUESTS / "c_lines.wasm")!r}).update()
    except arkml.GuestTrap as trap:
        print(trap)
"""
    told, plain = (
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"WASMTIME_BACKTRACE_DETAILS": details},
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout
        for details in "10"
    )  # fmt: skip

    assert "fixtures/guests/c/lines.c:4:" in told
    assert "fixtures/guests/c/lines.c:7:" in told
    assert "trapped: unreachable" in plain
    assert "lines.c" not in plain


@pytest.mark.parametrize(
    ("printed", "panic"),
    [
        (
            "thread '<unnamed>' panicked at 'no fish', lake.rs:3:5\nnote: run with it\n",
            "thread '<unnamed>' panicked at 'no fish', lake.rs:3:5",
        ),
        (
            "thread 'main' panicked at lake.rs:3:5:\nno fish\n",
            "thread 'main' panicked at lake.rs:3:5:\nno fish",
        ),
        ("a line\npanic: no fish\n", "panic: no fish"),
        ("Assertion failed: fish (lake.c: swim: 3)\n", "Assertion failed: fish (lake.c: swim: 3)"),
        ("thread 1 panic: no fish\nlake.zig:3:5\n", "thread 1 panic: no fish\nlake.zig:3:5"),
        (
            'out_of_range was thrown in -fno-exceptions mode with message "vector"',
            'out_of_range was thrown in -fno-exceptions mode with message "vector"',
        ),
        ("abort: no fish in lake.ts(3:5)\n", "abort: no fish in lake.ts(3:5)"),
        ("lake/lake.swift:3: Fatal error: no fish\n", "lake/lake.swift:3: Fatal error: no fish"),
        ("fatal error: all goroutines are asleep\n", "fatal error: all goroutines are asleep"),
        ("libc++abi.dylib: terminating\n", "libc++abi.dylib: terminating"),
        ("terminate called without an active exception\n",
         "terminate called without an active exception"),
        ("memory allocation of 24 bytes failed\n", "memory allocation of 24 bytes failed"),
        ("fatal runtime error: no fish, aborting\n", "fatal runtime error: no fish, aborting"),
        ("thread 'main' panicked at lake.rs:3:5:\nno fish\nfatal runtime error: aborting\n",
         "thread 'main' panicked at lake.rs:3:5:\nno fish\nfatal runtime error: aborting"),
        ("a line of another kind\n", None),
    ],
)  # fmt: skip
def test_the_text_of_a_panic_under_wasi_is_that_of_the_trap(printed, panic):
    with Host(wasi=WasiGrant(stderr=lambda _: None)) as host, pytest.raises(GuestTrap) as error:
        host.load(printing(printed)).call("fail")

    assert error.value.panic == panic


def test_a_panic_that_ends_in_an_exit_is_told_by_it():
    source = printing("panic: no fish\n", ending="(call $proc_exit (i32.const 2))")
    with Host(wasi=WasiGrant(stderr=lambda _: None)) as host:
        errors = []
        for call in ("fail", "ark_applet_update"):
            with pytest.raises(GuestExit) as caught:
                host.load(source, name="go.wasm").call(call)
            errors.append(caught.value)
        fleet = host.fleet(source, 2, name="go.wasm")
        errors += fleet.call("fail").failures.values()
        pickled = pickle.loads(pickle.dumps(errors[0]))

    assert [error.panic for error in [*errors, pickled]] == ["panic: no fish"] * 5
    assert [error.status for error in [*errors, pickled]] == [2] * 5
    assert str(errors[0]) == "go.wasm exited with status 2; it panicked: panic: no fish"


def test_an_exit_that_is_none_of_a_panic_has_none():
    for text, status in (("a line\n", 2), ("panic: no fish, but bread\n", 0)):
        source = printing(text, ending=f"(call $proc_exit (i32.const {status}))")
        with (
            Host(wasi=WasiGrant(stderr=lambda _: None)) as host,
            pytest.raises(GuestExit) as caught,
        ):
            host.load(source, name="go.wasm").call("fail")

        assert caught.value.panic is None
        assert str(caught.value) == f"go.wasm exited with status {status}"


def test_what_an_earlier_call_has_printed_is_no_panic_of_a_later_one():
    with Host(wasi=WasiGrant(stderr=lambda _: None)) as host:
        guest = host.load(printing("panic: no fish, but there is bread\n"))
        guest.call("print")
        with pytest.raises(GuestTrap) as error:
            guest.call("trap")

    assert error.value.panic is None


EXIT = '(import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))'


def printing(text, ending="unreachable"):
    """Return a guest that writes a text to standard error, ends by a trap, or does both."""
    return module(
        data(200, text.encode()),
        function(
            "print",
            "(i32.store (i32.const 100) (i32.const 200))"
            f"(i32.store (i32.const 104) (i32.const {len(text)}))"
            "(drop (call $fd_write (i32.const 2) (i32.const 100) (i32.const 1) (i32.const 112)))",
        ),
        function("trap", ending),
        function("fail", "(call $print) (call $trap)"),
        function("ark_applet_update", "(call $fail)"),
        imports=[wasi("fd_write", "i32 i32 i32 i32"), EXIT],
    )


def test_a_guest_of_a_fleet_is_named_with_its_number(host):
    fleet = host.fleet(module(function("f", "unreachable")), 3, name="npc.wasm")
    failures = fleet.call("f", only=[2]).failures

    (error,) = failures.values()
    assert str(error).startswith("npc.wasm#2 trapped: unreachable")


def test_exports_are_listed_so_that_each_name_shows(host):
    guest = host.load(
        b'(module (func (export "")) (func (export "a\\e2\\80\\aeb")) (func (export "c")))'
    )

    with pytest.raises(EntryPointMissing, match=r"it exports '', 'a\\u202eb', c$"):
        guest.call("nope")


def test_a_component_in_text_names_the_remedy(host):
    with pytest.raises(ModuleError, match=r"is a component.*wasm32-wasip1"):
        host.load(b"(component (core module))")


def test_exceptions_of_the_old_kind_name_the_remedy(host):
    data = wasmtime.wat2wasm("(module (func))")  # and a body with try, which text has no more
    body = bytes.fromhex("0a 08 01 06 00 06 40 19 0b 0b".replace(" ", ""))
    start = bytes(data).index(b"\x0a\x04\x01\x02\x00\x0b")
    old = bytes(data[:start]) + body + bytes(data[start + 6 :])

    told = r"exceptions of the old kind.*--translate-to-exnref.*-fno-exceptions"
    with pytest.raises(ModuleError, match=told):
        host.load(old)


def test_a_command_that_exited_says_so_when_it_is_run_again():
    with Host(wasi=WasiGrant(arguments=("command", "4"), stdout=lambda _: None)) as host:
        guest = host.load(GUESTS / "wasi_command.wasm")
        status = guest.run_command()
        with pytest.raises(GuestFailed, match=r"has exited with status 4: load it again to run it"):
            guest.run_command()

    assert status == 4
