import logging

import pytest
from tests.integration.callback_policy import assert_host_works
from tests.integration.guest_text import (
    ACTOR,
    GUESTS,
    LOG,
    PANIC,
    data,
    function,
    i32,
    logging_of,
    module,
)

from arkml.errors import (
    ArkmlError,
    GuestError,
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
    with pytest.raises(StackExhausted, match="recurse"):
        guest.call("recurse")


def test_frames_of_functions_without_names_show_their_numbers(host):
    guest = host.load(module('(func unreachable) (func (export "f") (call 0))'))
    with pytest.raises(GuestTrap) as error:
        guest.call("f")

    assert [frame.function for frame in error.value.frames] == ["function 0", "function 1"]
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
    with pytest.raises(GuestTrap, match=":9:4"):
        guest.call("fail")


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
