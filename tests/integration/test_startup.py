"""How modules of several compilers are started: once, and before anything else."""

import pytest
from tests.integration.command_line import arkml
from tests.integration.guest_text import GUESTS, function, module

from arkml import Host, WasiGrant
from arkml.errors import EntryPointMissing, GuestExit
from arkml.guests.guest import seeded_initializers
from arkml.training.task_runner import make_runner
from arkml.training.tasks import Task, find_task

COMMAND_MODE = [GUESTS / "cpp_command.wasm", GUESTS / "cpp_command_stripped.wasm"]
TICKING = """(module (memory (export "memory") 1) (global $ticks (mut i32) (i32.const 0))
  (func $tick (global.set $ticks (i32.add (global.get $ticks) (i32.const 1))))
  (func $frame) (func $count (result i32) (global.get $ticks))
  (func (export "ark_applet_update") (call $tick) (call $frame))
  (func (export "ticks") (result i32) (call $tick) (call $count)))"""
"""Every export calls one function first, and means to."""
RERUN = TICKING.replace("$tick)", "$__wasm_call_ctors)").replace("$tick ", "$__wasm_call_ctors ")
INLINED = RERUN.replace("(call $__wasm_call_ctors) (call $frame)", "(call $__wasm_call_ctors)")
"""As an optimizer leaves the exports of wasm-ld's command mode: without the names of wrappers."""
LIBRARY = module(
    "(global $starts (mut i32) (i32.const 0))",
    function("_start", "(global.set $starts (i32.add (global.get $starts) (i32.const 1)))"),
    function("starts", "(global.get $starts)", result="i32"),
    function("ark_wasi_cmdlet_help", ""),
)
"""A module that is a command, and a library whose functions are called after `_start`."""


@pytest.mark.parametrize(
    "guest", [*COMMAND_MODE, GUESTS / "cpp_constructors.wasm"], ids=lambda path: path.stem
)
def test_constructors_of_cpp_run_once_and_the_state_stays(guest):
    with Host() as host, host.load(guest) as loaded, host.fleet(guest, 3) as fleet:
        first = loaded.call("seed"), loaded.call("constructions")
        for _ in range(3):
            loaded.update()
            fleet.update()

        assert first == (42, 1)
        assert loaded.call("seed") == 45
        assert loaded.call("add", 10, 100) == 255
        assert loaded.call("constructions") == 1
        assert fleet.call("seed").values == [45] * 3
        assert fleet.call("constructions").values == [1] * 3


@pytest.mark.parametrize("guest", COMMAND_MODE, ids=lambda path: path.stem)
def test_a_build_in_command_mode_is_told_by_inspect_and_smoke_with_the_flag_that_mends_it(guest):
    shown = arkml("inspect", guest, "--json")
    smoked = arkml("smoke", guest)

    startup = shown.json["startup"]
    assert startup["functions"] == ["arkml:constructors"]
    assert "-Wl,--export=__wasm_call_ctors" in startup["note"]
    assert smoked.status == 0
    assert "ok    initialize  no trap: the constructors" in smoked.out
    assert "-mexec-model=reactor" in smoked.out


def test_the_flag_of_the_note_mends_it():
    with Host() as host:
        info = host.compile(GUESTS / "cpp_constructors.wasm").info

    assert info.startup.functions == ("__wasm_call_ctors",)
    assert info.startup.note == ""


@pytest.mark.parametrize("text", [RERUN, INLINED])
def test_exports_that_run_named_constructors_again_fail_a_smoke_test(tmp_path, text):
    path = tmp_path / "rerun.wat"
    path.write_text(text)
    run = arkml("smoke", path)

    assert run.status == 1
    assert "FAIL  start       every export runs the constructors again" in run.out


def test_exports_that_call_one_function_first_keep_it_and_are_told(tmp_path):
    path = tmp_path / "ticking.wat"
    path.write_text(TICKING)
    with Host() as host, host.load(path) as guest:
        guest.update()
        ticks = guest.call("ticks")
        note = guest.info.startup.note
    run = arkml("smoke", path)

    assert ticks == 2
    assert note.startswith("every export calls function 0 (tick) first; if that is a constructor,")
    assert run.status == 0
    assert "every export calls function 0 (tick) first" in run.out


def test_one_export_without_names_is_not_taken_for_a_wrapper(host):
    text = b"""(module (global (mut i32) (i32.const 0))
      (func (global.set 0 (i32.add (global.get 0) (i32.const 1))))
      (func (result i32) (global.get 0))
      (func (export "first") (result i32) (call 0) (call 1))
      (func (export "second") (result i32) (i32.const 1)))"""
    guest = host.load(text)

    assert [guest.call("first") for _ in range(2)] == [1, 2]


def test_a_start_of_a_language_is_called_once_before_the_frames(host):
    guest = host.load(GUESTS / "c_started.wasm")
    fleet = host.fleet(GUESTS / "c_started.wasm", 2)
    guest.update()
    fleet.update()

    assert (guest.call("starts"), guest.call("frames")) == (1, 1)
    assert fleet.call("starts").values == [1, 1]
    assert str(guest.info.startup) == "_start"
    assert arkml("run", GUESTS / "c_started.wasm", "--frames", "2").status == 0


def test_a_command_is_started_before_another_function_is_called_and_once(host):
    guest, command = host.load(LIBRARY), host.load(LIBRARY)
    fleet = host.fleet(LIBRARY, 3)
    counts = [guest.call("starts") for _ in range(2)]
    status = command.run_command()
    second = fleet.call("starts", only=[1]).values
    fleet.join()

    assert counts == [1, 1]
    assert (status, command.call("starts")) == (0, 1)
    assert second == [1]
    assert fleet.call("starts").values == [1] * 4
    assert str(guest.info.startup) == "_start, before the first call of another function"


def test_a_start_with_a_result_is_not_called_and_told(host, tmp_path):
    path = tmp_path / "started.wat"
    path.write_bytes(
        module(
            "(global $starts (mut i32) (i32.const 0))",
            function("_start", "(global.set $starts (i32.const 7)) (i32.const 0)", result="i32"),
            function("starts", "(global.get $starts)", result="i32"),
        )
    )
    guest = host.load(path)
    shown = arkml("inspect", path, "--json").json["startup"]

    assert "_start takes or returns something" in shown["note"]
    assert guest.call("starts") == 0
    assert guest.call("_start") == 0
    assert guest.call("starts") == 7


def test_what_concerns_the_command_alone_does_not_start_it(host):
    guest = host.load(LIBRARY)
    guest.help()
    with pytest.raises(EntryPointMissing):
        guest.call("nothing")
    guest.run_command()

    assert guest.call("starts") == 1


async def test_calls_of_coroutines_start_a_command_too(host):
    guest = host.load(LIBRARY)

    assert [await guest.call_async("starts") for _ in range(2)] == [1, 1]


def test_a_start_that_exits_says_so():
    imported = '(import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))'
    text = module(
        function("_start", "(call $proc_exit (i32.const 3))"),
        function("f", ""),
        imports=[imported],
    )
    with Host(wasi=WasiGrant()) as granted:
        guest = granted.load(text, name="exits")
        with pytest.raises(GuestExit, match=r"_start exited|exits exited with status 3"):
            guest.call("f")


EXITING = """(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1) (global $starts (mut i32) (i32.const 0))
  (func (export "_start") (global.set $starts (i32.add (global.get $starts) (i32.const 1)))
    (call $exit (i32.const 0)))
  (func (export "starts") (result i32) (global.get $starts))%s)"""
"""A start that exits with status 0, as that of Zig does."""


@pytest.mark.parametrize("frame", ['(func (export "ark_applet_update"))', ""])
def test_a_start_that_exits_with_status_0_has_started_the_guest(frame):
    text = (EXITING % frame).encode()
    with Host(wasi=WasiGrant()) as host, host.load(text) as guest, host.fleet(text, 2) as fleet:
        if frame:
            guest.update()
            failures = fleet.update()
            assert failures == {}
        first = guest.call("starts"), fleet.call("starts").values

        assert first == (1, [1, 1])
        assert guest.call("starts") == 1


def test_a_command_that_exits_with_status_0_is_over():
    text = (EXITING % "").encode()
    with Host(wasi=WasiGrant()) as host:
        commands = host.load(text), host.load(text)
        status = commands[0].run_command()
        with pytest.raises(GuestExit):
            commands[1].call("_start")
        failures = [type(command.failure) for command in commands]

        assert status == 0
        assert failures == [GuestExit, GuestExit]


def test_guests_are_initialized_once(host):
    guest, fleet = host.load(GUESTS / "c_started.wasm"), host.fleet(GUESTS / "c_started.wasm", 2)
    guest.initialize()

    assert fleet.initialize() == {}
    assert guest.call("starts") == 1
    assert fleet.call("starts").values == [1, 1]


@pytest.mark.parametrize("frame", ["ark_applet_update", "tick"])
def test_a_command_with_frames_whose_globals_are_destroyed_is_told(tmp_path, frame):
    path = tmp_path / "destroyed.wat"
    path.write_text(
        f"""(module (func $__cxa_atexit)
          (func (export "_start") (call $__cxa_atexit)) (func (export "{frame}")))"""
    )
    run = arkml("smoke", path)

    assert ("its global objects are destroyed" in run.out) == (frame == "ark_applet_update")


@pytest.mark.parametrize("frame", ["ark_applet_update", "tick"])
def test_a_command_without_a_main_function_is_told(tmp_path, frame):
    path = tmp_path / "mainless.wat"
    path.write_text(
        f"""(module (func $undefined_weak:main unreachable)
          (func (export "_start") (call $undefined_weak:main)) (func (export "{frame}")))"""
    )
    run, shown = arkml("smoke", path), arkml("inspect", path)

    assert run.status == 1
    assert "a command without a main function" in run.out
    assert "link it with -mexec-model=reactor" in shown.out


def test_seeded_starts_run_in_the_order_of_the_initializers(host):
    compiled = host.compile(LIBRARY)
    called, command = Task(compiled.info.entry_points[-1].kind, "starts"), find_task(compiled)
    counts = []
    for task in (called, command):
        runner = make_runner(host, compiled, task, instances=1, budget=None)
        runner.initialize(seed=5)
        runner.step()
        counts.append(runner.subject.call("starts"))

    assert command.function == "_start"
    assert counts == [1, 1]


@pytest.mark.parametrize(("function", "first"), [("starts", ["_start"]), ("_start", [])])
def test_an_environment_starts_its_guest_before_the_function_that_plays(host, function, first):
    assert seeded_initializers(host.compile(LIBRARY), function) == first
