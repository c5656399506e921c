import threading
from pathlib import Path

import pytest
from tests.integration.guest_text import (
    ACTOR,
    ALLOCATOR,
    GUESTS,
    INPUT,
    LOG,
    POLL_BOOL,
    RETURN,
    data,
    function,
    i32,
    logging_of,
    module,
)

from arkml.errors import (
    CmdletFailed,
    EntryPointMissing,
    GuestError,
    GuestTimeout,
    GuestTrap,
    UsageError,
)
from arkml.guests.blocking import Waiting
from arkml.guests.guest import calls_of
from arkml.runtime.module.description import ModuleKind
from arkml.sessions.results import BOOL

FORWARD = f"(call ${RETURN} (local.get 0) (local.get 1) (local.get 1))"


def taking(name, body, *more, uses=(RETURN,), **options):
    """A guest that takes bytes under `name`."""
    entry = function(name, body, "(param i32 i32)", "i32")
    return module(ALLOCATOR, entry, *more, uses=uses, **options)


@pytest.mark.parametrize(
    ("guest_file", "kind"),
    [
        ("c_applet.wasm", ModuleKind.APPLET),
        ("as_applet.wasm", ModuleKind.APPLET),
        ("c_kinds.wasm", ModuleKind.CMDLET),
        ("rust_cmdlet.wasm", ModuleKind.CMDLET),
        ("c_servlet.wasm", ModuleKind.SERVLET),
        ("bench_guest.wasm", ModuleKind.PLAIN),
        ("ark_api/applet_train_016.wasm", ModuleKind.APPLET),
        ("ark_api/cmdlet_infer_016.wasm", ModuleKind.CMDLET),
        ("ark_api/cmdlet_infer_017.wasm", ModuleKind.CMDLET),
        ("ark_api/module_run_016.wasm", ModuleKind.MODULE_RUN),
    ],
)
def test_the_exports_tell_the_kind_of_a_module(host, guest_file, kind):
    assert host.load(GUESTS / guest_file, initialize=False).info.kind is kind


# Applets.


@pytest.mark.parametrize("guest_file", ["c_applet.wasm", "as_applet.wasm"])
def test_an_applet_runs_frame_by_frame(host, guest_file):
    guest = host.load(GUESTS / guest_file)
    for _ in range(60):
        guest.update()

    assert guest.call("frames") == 60
    assert guest.call("status") == 0
    assert guest.statistics.submits == 60
    assert not guest.statistics.errors


def test_the_point_masses_of_an_applet_come_to_rest(host):
    guest = host.load(GUESTS / "c_applet.wasm")
    for _ in range(153):
        guest.update()

    assert guest.call("episodes") == 24
    assert -20 < guest.call("mean_return") < -1


def test_a_module_without_an_update_is_no_applet(host):
    with pytest.raises(EntryPointMissing, match="ark_applet_update"):
        host.load(ACTOR).update()


# Cmdlets.


def test_a_cmdlet_returns_what_it_gave_to_return_slice(host):
    assert host.load(taking("ark_cmdlet_run", f"(drop {FORWARD}) {i32(0)}")).run_cmdlet(
        "one two"
    ) == (b"one two")


def test_a_failing_cmdlet_raises_its_words_and_stays_usable(host):
    guest = host.load(GUESTS / "c_kinds.wasm")
    with pytest.raises(CmdletFailed, match="status 1: fail with words") as error:
        guest.run_cmdlet("fail with words")
    assert error.value.status == 1
    with pytest.raises(CmdletFailed, match="status 2: unknown arguments"):
        guest.run_cmdlet("dance")

    assert guest.failure is None
    assert guest.run_cmdlet("connect") == b""


def test_arguments_that_are_not_utf_8_are_refused(host):
    guest = host.load(GUESTS / "c_kinds.wasm")
    with pytest.raises(UsageError, match=r"arguments is 'a\\udcff': U\+DCFF in it"):
        guest.run_cmdlet("a\udcff")

    assert guest.run_cmdlet("connect") == b""


@pytest.mark.parametrize("wrong", [b"connect", bytearray(b"connect"), 5], ids=repr)
def test_arguments_that_are_no_texts_are_refused(host, wrong):
    guest = host.load(GUESTS / "c_kinds.wasm")
    with pytest.raises(UsageError, match=r"^arguments is .*: it takes a text, or a list of texts$"):
        guest.run_cmdlet(wrong)


def test_the_words_of_an_earlier_call_are_not_told_again(host):
    guest = host.load(
        taking(
            "ark_cmdlet_run",
            f"""(if (i32.eq (local.get 1) {i32(3)}) (then (drop {FORWARD})))
            {i32(1)}""",
        )
    )
    with pytest.raises(CmdletFailed, match="old"):
        guest.run_cmdlet("old")
    with pytest.raises(CmdletFailed, match="no message"):
        guest.run_cmdlet("newer")


def test_words_that_are_no_text_are_shown_as_far_as_they_are(host):
    guest = host.load(
        taking(
            "ark_cmdlet_run", f"(i32.store8 (local.get 0) {i32(0xFF)}) (drop {FORWARD}) {i32(1)}"
        )
    )
    with pytest.raises(CmdletFailed, match="�ish"):
        guest.run_cmdlet("fish")


def test_a_status_is_unsigned(host):
    guest = host.load(taking("ark_cmdlet_run", i32(-1)))
    with pytest.raises(CmdletFailed) as error:
        guest.run_cmdlet()

    assert error.value.status == 0xFFFF_FFFF


@pytest.mark.parametrize("guest_file", ["c_kinds.wasm", "rust_cmdlet.wasm"])
def test_a_cmdlet_has_a_help_text(host, guest_file):
    assert "fail WORDS | panic WORDS" in host.load(GUESTS / guest_file).help()


def test_the_help_of_a_wasi_cmdlet_is_found_under_its_own_name(host):
    guest = host.load(
        module(
            data(100, b"do this"),
            function(
                "ark_wasi_cmdlet_help", f"(drop (call ${RETURN} {i32(100)} {i32(7)} {i32(7)}))"
            ),
            uses=(RETURN,),
        )
    )

    assert guest.help() == "do this"


def test_a_cmdlet_without_help_says_so(host):
    with pytest.raises(EntryPointMissing, match="no help"):
        host.load(taking("ark_cmdlet_run", i32(0))).help()


def test_a_cmdlet_that_blocks_on_a_future_gets_the_answer(host):
    """It polls in a loop, and the host is not configured with a hive."""
    assert host.load(GUESTS / "c_kinds.wasm").run_cmdlet("connect", budget=None) == b""


def test_a_guest_that_blocks_on_poll_sleeps(host):
    """It polls a few hundred times in a third of a second: a guest that did not sleep, millions."""
    guest = host.load(ACTOR)
    handle, future = calls_of(guest).services.futures.open(BOOL)
    timer = threading.Timer(0.3, future.resolve, (True,))
    timer.start()
    polls = guest.call("poll_until_ready", handle, budget=None)
    timer.join()

    assert 64 < polls < 20_000


def test_a_guest_that_blocks_on_poll_wakes_when_its_future_changes(host):
    """Not after the hour that its wait could take."""
    guest = host.load(ACTOR)
    handle, future = calls_of(guest).services.futures.open(BOOL)
    other, _ = calls_of(guest).services.futures.open(BOOL)
    for _ in range(200):
        assert guest.call("poll", other) == 0
    threading.Timer(0.02, future.resolve, (False,)).start()

    assert guest.call("poll_until_ready", handle) > 0


def test_the_first_sixty_four_polls_of_a_call_do_not_wait(host, monkeypatch):
    guest = host.load(ACTOR)
    handle, _ = calls_of(guest).services.futures.open(BOOL)
    waits = []
    monkeypatch.setattr(Waiting, "_spin", waits.append)
    for _ in range(200):
        assert guest.call("poll", handle) == 0  # one poll a call, as an applet does

    assert waits == []


# Functions that take bytes.


def test_a_function_of_any_name_runs_on_bytes(host):
    guest = host.load(GUESTS / "c_kinds.wasm")
    reply = guest.invoke("double_words", (7).to_bytes(4, "little") + (9).to_bytes(4, "little"))

    assert (reply.status, reply.data) == (0, b"\x0e\0\0\0\x12\0\0\0")
    assert guest.invoke("double_words", b"odd").status == 5
    assert guest.invoke("double_words").data == b""


def test_the_input_of_the_current_call_can_be_asked_for(host):
    """Three bytes from offset one, then over the end."""
    body = f"""
      (i32.store8 {i32(200)} (call ${INPUT} {i32(100)} {i32(3)} {i32(1)}))
      (i32.store8 {i32(201)} (call ${INPUT} {i32(104)} {i32(3)} {i32(4)}))
      (i32.store8 {i32(202)} (call ${INPUT} {i32(-2)} {i32(3)} {i32(0)}))
      {i32(0)}"""
    guest = host.load(taking("ask", body, uses=(INPUT,)))
    guest.write_memory(100, b"????????")
    assert guest.invoke("ask", b"abcdef").status == 0

    assert guest.read_memory(100, 8) == b"bcd?????"
    assert guest.read_memory(200, 3) == bytes((0, 5, 5))
    assert guest.invoke("ask").status == 0
    assert guest.read_memory(200, 3) == bytes((5, 5, 5))


def test_the_allocator_is_never_asked_for_nothing(host):
    """It traps if it is; the pointer is then the alignment, and the length 0."""
    guest = host.load(
        taking("where", "(i32.or (i32.shl (local.get 1) (i32.const 16)) (local.get 0))")
    )

    assert guest.invoke("where").status == 8
    assert guest.invoke("where", b"").status == 8
    assert guest.invoke("where", b"x").status > 8
    assert guest.failure is None


def test_input_is_given_back_after_the_call(host):
    guest = host.load(taking("where", "(local.get 0)"))
    places = {guest.invoke("where", b"x" * size).status for size in (1, 1000, 16, 30000)}

    assert len(places) == 1


def test_an_allocator_without_room_is_an_error_and_the_guest_lives(host):
    guest = host.load(
        module(
            function("ark_alloc", i32(0), "(param i32 i32)", "i32"),
            function("ark_free", "unreachable", "(param i32 i32 i32)"),
            function("take", "unreachable", "(param i32 i32)", "i32"),
        )
    )
    with pytest.raises(GuestError, match="no memory for 5 bytes"):
        guest.invoke("take", b"bytes")

    assert guest.failure is None
    assert guest.call("ark_alloc", 1, 1) == 0


def test_an_allocator_that_points_outside_is_an_error_of_ours(host):
    guest = host.load(
        module(
            function("ark_alloc", i32(-16), "(param i32 i32)", "i32"),
            function("ark_free", "", "(param i32 i32 i32)"),
            function("take", "unreachable", "(param i32 i32)", "i32"),
        )
    )
    with pytest.raises(GuestError, match="ark_alloc"):
        guest.invoke("take", b"x" * 100)


@pytest.mark.parametrize(
    "exports",
    [
        (),
        (function("ark_alloc", i32(64), "(param i32 i32)", "i32"),),
        (
            function("ark_alloc", i32(64), "(param i32)", "i32"),
            function("ark_free", "", "(param i32 i32 i32)"),
        ),
    ],
)
def test_a_guest_without_an_allocator_takes_no_bytes_and_the_message_says_why(host, exports):
    guest = host.load(module(*exports, function("take", i32(0), "(param i32 i32)", "i32")))
    with pytest.raises(EntryPointMissing, match="ark_alloc and ark_free"):
        guest.invoke("take", b"bytes")

    assert guest.call("take", 1, 2) == 0  # as numbers it works


def test_a_function_of_other_types_takes_no_bytes(host):
    guest = host.load(module(ALLOCATOR, function("f", "", "(param f32)")))
    with pytest.raises(EntryPointMissing, match=r"\(f32\)"):
        guest.invoke("f", b"bytes")


def test_input_is_given_back_if_the_call_fails_but_not_to_a_failed_guest(host):
    guest = host.load(taking("take", "unreachable"))
    with pytest.raises(GuestTrap):
        guest.invoke("take", b"bytes")


def test_an_allocator_may_grow_the_memory(host):
    guest = host.load(
        module(
            function("ark_alloc", f"(i32.shl (memory.grow {i32(40)}) {i32(16)})",
                     "(param i32 i32)", "i32"),
            function("ark_free", "", "(param i32 i32 i32)"),
            function("echo", f"(drop {FORWARD}) {i32(0)}", "(param i32 i32)", "i32"),
            uses=(RETURN,),
        )
    )  # fmt: skip
    sent = bytes(range(256)) * 10_000

    assert guest.invoke("echo", sent).data == sent


# Servlets and state.


def test_a_servlet_answers_requests(host):
    guest = host.load(GUESTS / "c_servlet.wasm")

    assert guest.request(b"a fish, please") == b"A FISH, PLEASE"
    assert guest.request(b"") == b""
    assert guest.call("requests") == 2


def test_a_servlet_that_refuses_raises_its_words(host):
    guest = host.load(taking("ark_servlet_request", f"(drop {FORWARD}) {i32(3)}"))
    with pytest.raises(CmdletFailed, match="answered 3 no") as error:
        guest.request(b"no")

    assert error.value.status == 3


def test_state_goes_from_one_guest_to_another(host):
    first, second = host.load(GUESTS / "c_servlet.wasm"), host.load(GUESTS / "c_servlet.wasm")
    for _ in range(5):
        first.request(b"x")
    second.restore(first.persist())

    assert second.call("requests") == 5
    with pytest.raises(CmdletFailed, match="5"):
        second.restore(b"not a count")
    assert second.call("requests") == 5


def test_a_guest_without_state_says_so(host):
    guest = host.load(taking("take", i32(0)))
    with pytest.raises(EntryPointMissing, match="ark_state_persist"):
        guest.persist()
    with pytest.raises(EntryPointMissing, match="ark_state_restore"):
        guest.restore(b"")


@pytest.mark.parametrize("state", ["orc.state", Path("orc.state")])
def test_a_path_is_no_state_and_the_way_to_read_one_is_named(host, state):
    guest = host.load(GUESTS / "c_servlet.wasm")
    with pytest.raises(UsageError, match=r"'orc\.state'.* GuestSnapshot\.load reads from a file"):
        guest.restore(state)


def test_a_function_that_is_not_exported_is_refused_with_those_that_are(host):
    guest = host.load(GUESTS / "c_servlet.wasm")
    for call in (guest.invoke, guest.call):
        with pytest.raises(EntryPointMissing, match=r"function 'x'; it exports .*requests"):
            call("x")


def test_a_guest_that_cannot_persist_raises_its_code(host):
    guest = host.load(module(function("ark_state_persist", i32(7), result="i32")))
    with pytest.raises(CmdletFailed, match="7") as error:
        guest.persist()

    assert error.value.status == 7


def test_allocation_counts_are_read_from_memory(host):
    counts = b"".join(n.to_bytes(8, "little") for n in (4, 300, 2, 1 << 40))
    guest = host.load(
        module(data(96, counts), function("ark_get_alloc_stats", i32(96), result="i32"))
    )

    assert guest.allocations() == (4, 300, 2, 1 << 40)
    assert host.load(ACTOR).allocations() is None


# What is called first, and in which order.


def noting(*names):
    """A guest whose initializers append their place in `names` to memory."""
    parts = [
        function(
            name,
            f"(i32.store8 (i32.load {i32(0)}) {i32(number)})"
            f"(i32.store {i32(0)} (i32.add (i32.load {i32(0)}) {i32(1)}))",
        )
        for number, name in enumerate(names, 1)
    ]
    return (data(0, b"\x40\0\0\0"), *parts)


def test_initializers_are_called_in_order_and_once(host):
    names = ("ark_initialize", "begin", "ark_register_panic_hook", "_initialize")
    guest = host.load(module(*noting(*names), "(start $begin)"))

    assert guest.read_memory(64, 8) == bytes((2, 4, 3, 1, 0, 0, 0, 0))


def test_a_guest_may_be_loaded_without_initializing_it(host):
    guest = host.load(module(*noting("_initialize", "ark_initialize")), initialize=False)
    before = guest.read_memory(64, 2)
    guest.initialize()

    assert before == b"\0\0"
    assert guest.read_memory(64, 2) == b"\x01\x02"


def test_an_initializer_that_traps_closes_the_guest(host):
    with pytest.raises(GuestTrap, match="_initialize"):
        host.load(module(function("_initialize", "unreachable")))


# Memories.


def test_a_guest_may_import_its_memory(host):
    text, say = logging_of("imported", at=100)
    guest = host.load(
        module(
            text,
            function("say", say),
            function("size", "(memory.size)", result="i32"),
            uses=(LOG,),
            imports=('(import "env" "memory" (memory $m 3 9))',),
            memory="",
        )
    )
    guest.call("say")
    guest.write_memory(100, b"exported")

    assert guest.call("size") == 3
    assert guest.read_memory(100, 8) == b"exported"
    assert guest.failure is None


def test_a_guest_may_hide_its_memory(host, caplog):
    caplog.set_level("INFO")
    text, say = logging_of("hidden", at=100)
    host.load(module(text, function("say", say), uses=(LOG,), memory="(memory 1)")).call("say")

    assert "hidden" in caplog.text


def test_a_guest_may_have_no_memory(host):
    guest = host.load(
        module(
            function("add", "(i32.add (local.get 0) (local.get 1))", "(param i32 i32)", "i32"),
            function("say", f"(call ${LOG} {i32(2)} {i32(0)} {i32(0)})", result="i32"),
            function("far", f"(call ${LOG} {i32(2)} {i32(0)} {i32(1)})", result="i32"),
            function("poll", f"(call ${POLL_BOOL} (i64.const 1) {i32(0)})", result="i32"),
            uses=(LOG, POLL_BOOL),
            memory="",
        )
    )

    assert guest.call("add", 40, 2) == 42
    assert guest.call("say") == 0
    assert guest.call("far") in (0, 5)
    assert guest.call("poll") == 5


def test_a_guest_may_export_its_memory_under_any_name(host):
    guest = host.load(module(data(8, b"here"), memory='(memory (export "heap") 1)'))

    assert guest.read_memory(8, 4) == b"here"


def test_a_memory_may_begin_empty_and_grow(host):
    guest = host.load(
        module(
            function("grow", "(memory.grow (i32.const 1))", result="i32"),
            function("log", f"(call ${LOG} {i32(2)} {i32(0)} (local.get 0))", "(param i32)", "i32"),
            function("poll", f"(call ${POLL_BOOL} (i64.const 1) {i32(0)})", result="i32"),
            uses=(LOG, POLL_BOOL),
            memory='(memory (export "memory") 0)',
        )
    )

    assert [guest.call("poll"), guest.call("log", 0)] == [5, 0]
    assert guest.call("grow") == 0
    assert [guest.call("poll"), guest.call("log", 9)] == [6, 0]
    assert guest.read_memory(65535, 1) == b"\0"


# Plain exports.


def test_plain_functions_take_and_return_numbers(host):
    guest = host.load(
        module(
            function("mix", "(f64.add (f64.convert_i64_s (local.get 0)) (local.get 1))",
                     "(param i64 f64)", "f64"),
            function("nothing", ""),
            function("swap", "(local.get 1) (local.get 0)", "(param i32 i32)", "i32 i32"),
        )
    )  # fmt: skip

    assert guest.call("mix", -3, 0.25) == -2.75
    assert guest.call("nothing") is None
    assert guest.call("swap", 1, -2) == (-2, 1)


@pytest.mark.parametrize("kind", ["v128", "externref", "funcref"])
def test_a_function_of_other_values_is_refused_when_it_is_called(host, kind):
    guest = host.load(module(function("odd", "", f"(param {kind})"), function("f", "")))
    with pytest.raises(UsageError, match="odd"):
        guest.call("odd", 0)

    assert guest.call("f") is None


def test_a_missing_function_is_told_with_those_that_are_there(host):
    with pytest.raises(EntryPointMissing, match="'frame'; it exports first, second"):
        host.load(module(function("first", ""), function("second", ""))).call("frame")


def test_a_cmdlet_may_be_given_more_time(host):
    burn = function(
        "burn",
        """(local $n i32) (local.set $n (i32.const 200000000))
        (loop $more (br_if $more (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))""",
    )
    entry = f"(call $burn) {i32(0)}"
    guest = host.load(taking("ark_cmdlet_run", entry, burn))

    assert guest.run_cmdlet(budget=None) == b""
    with pytest.raises(GuestTimeout):
        guest.run_cmdlet(budget=0.01)
