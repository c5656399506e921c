"""`arkml run`, as a user calls it."""

import re
import signal
import subprocess
import sys

import pytest
from tests.integration.command_line import (
    ENVIRONMENT,
    FRAMES,
    GUESTS,
    LOOP,
    POLICIES,
    ROOT,
    arkml,
    arkml_for_each,
)

APPLET = GUESTS / "c_applet.wasm"
INFER = GUESTS / "ark_api" / "cmdlet_infer_016.wasm"
POINTMASS = GUESTS / "policies" / "pointmass.onnx"
MODULE_RUN = GUESTS / "ark_api" / "module_run_016.wasm"


@pytest.fixture
def wat(tmp_path):
    """Write a module and return its path."""

    def write(text, name="guest.wat"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_an_applet_runs_600_frames_and_ends_with_a_table():
    run = arkml("run", APPLET)

    assert run.status == 0
    assert "running c_applet.wasm (applet)" in run.err
    assert "INFO    c_applet.wasm: frame 51: 8 episodes" in run.err
    assert re.search(r"frames +600\b", run.out)
    assert re.search(r"rows +4,800 \(8 a frame\)", run.out)
    assert re.search(r"actions a second +[\d,]+", run.out)
    assert re.search(r"frame time +median .+, p99 .+, max ", run.out)
    assert re.search(r"errors +none", run.out)
    assert re.search(r"late frames +none \(no --fps\)", run.out)


def test_json_is_one_object_and_nothing_else():
    run = arkml("run", APPLET, "--frames", "100", "--json")

    assert run.status == 0
    assert run.json["guest"] == "c_applet.wasm"
    assert run.json["kind"] == "applet"
    assert run.json["frames"] == run.json["submits"] == 100
    assert run.json["rows"] == 800
    assert 0 < run.json["frame_seconds"]["median"] <= run.json["frame_seconds"]["max"]
    assert run.json["late_frames"] is None
    assert run.json["errors"] == {}


@pytest.mark.parametrize("version", ["016", "017"])
def test_the_published_cmdlets_pass(version):
    run = arkml("run", GUESTS / f"ark_api/cmdlet_infer_{version}.wasm", "--cmdlet", "infer all")

    assert run.status == 0, run.err
    logged = [line for line in run.err.splitlines() if line.startswith("INFO")]
    assert logged[-1].endswith("all checks passed")


@pytest.mark.parametrize("words", [("run", INFER), ("smoke", INFER), ("bench", INFER)])
def test_arguments_that_are_not_utf_8_are_refused(words):
    refused = arkml(*words, "--cmdlet", "a\udcff")

    assert refused.status == 2, refused.err
    assert "arguments is 'a\\udcff'" in refused.err


def test_a_command_runs_whose_file_has_a_name_that_is_not_utf_8(tmp_path):
    command = tmp_path / "a\udcff.wasm"
    command.write_bytes((GUESTS / "wasi_command.wasm").read_bytes())
    run = arkml("run", command, "--wasi", "--cmdlet", "0")

    assert run.status == 0, run.err


def test_arguments_of_a_cmdlet_are_its_own_and_those_of_wasi_are_words_of_a_shell():
    cmdlet = arkml("run", INFER, "--cmdlet", "fail as they don't agree")
    command = arkml("run", GUESTS / "wasi_command.wasm", "--wasi", "--cmdlet", "0 don't")

    assert "deliberate failure: as they don't agree" in cmdlet.err
    assert command.status == 2
    assert command.err == (
        "error: --cmdlet 0 don't: no closing quotation; quotes and backslashes are those of a"
        " shell\n"
    )


def test_a_cmdlet_that_fails_is_exit_code_1_with_its_message():
    run = arkml("run", INFER, "--cmdlet", "fail for a reason")

    assert run.status == 1
    assert (
        "error: cmdlet_infer_016.wasm failed with status 1: deliberate failure: for a reason"
        in (run.err)
    )
    assert run.out == ""


def test_a_panic_is_exit_code_1_with_message_place_and_backtrace_but_no_traceback():
    run = arkml("run", INFER, "--cmdlet", "panic at once")

    assert run.status == 1
    assert (
        "panicked: deliberate panic: at once, cmdlet_infer_016/src/lib.rs:172:33\n  0: " in run.err
    )
    assert "Traceback" not in run.err


def test_debug_adds_the_traceback():
    run = arkml("run", INFER, "--cmdlet", "panic at once", "--debug")

    assert run.status == 1
    assert "Traceback" in run.err
    assert "DEBUG   cmdlet_infer_016.wasm: initialized" in run.err


def test_an_error_is_an_object_under_json():
    run = arkml("run", INFER, "--cmdlet", "fail so", "--json")

    assert run.status == 1
    assert run.json["type"] == "CmdletFailed"
    assert run.json["error"].endswith("deliberate failure: so")
    assert run.json["status"] == 1


def test_a_trap_names_the_frame():
    run = arkml("run", GUESTS / "as_abort.wasm")

    assert run.status == 1
    assert "failed in frame 3 of 600" in run.err
    assert "frame 3 is too much: åäö ✓, fixtures/guests/assemblyscript/abort.ts:7:3" in run.err


def test_a_function_of_bytes_is_invoked_and_its_result_written(tmp_path):
    out = tmp_path / "det.crvo"
    run = arkml(
        "run", MODULE_RUN, "--invoke", "transform", "--input", POLICIES / "det.onnx", "--out", out
    )

    assert run.status == 0
    assert out.read_bytes() == b"CRVO\0\0\0\1" + (POLICIES / "det.onnx").read_bytes()


def test_bytes_that_are_no_text_are_not_shown():
    run = arkml("run", MODULE_RUN, "--invoke", "lengths", "--input", POLICIES / "det.onnx")

    assert run.status == 0
    assert "8 bytes that are not text (--out FILE keeps them)" in run.out


def test_a_status_of_a_function_is_named():
    run = arkml("run", MODULE_RUN, "--invoke", "transform")

    assert run.status == 1
    assert "transform answered 5 (INVALID_ARGUMENTS)" in run.err


def test_a_module_without_an_obvious_task_is_only_initialized():
    run = arkml("run", MODULE_RUN)

    assert run.status == 0
    assert "nothing was called; --invoke takes one of lengths (i32 i32) -> (i32), trans" in run.err


def test_a_module_with_nothing_but_a_misspelled_export_is_told_what_may_be_meant(wat):
    guest = wat(FRAMES.replace("ark_applet", "ark_aplet"))
    told = "nothing calls the export ark_aplet_update: did you mean ark_applet_update?"
    run, several = arkml("run", guest), arkml("run", guest, "--frames", "2")

    assert run.status != 0
    assert f"nothing was called; guest.wat exports no entry point\nerror: {told}" in run.err
    assert f"--frames does not go with a module without a task: {told}" in several.err


def test_a_servlet_answers_standard_input():
    run = arkml("run", GUESTS / "c_servlet.wasm", "--input", "-", stdin="hello servlet")

    assert run.status == 0
    assert run.out.startswith("HELLO SERVLET\n")


def test_what_a_guest_returns_cannot_command_the_terminal():
    run = arkml("run", GUESTS / "c_servlet.wasm", "--input", "-", stdin="red \x1b[31m")

    assert "RED \\x1b[31M" in run.out
    assert "\x1b" not in run.out


def test_numbers_are_read_as_the_function_wants_them_and_may_be_negative(wat):
    guest = wat(
        '(module (func (export "mix") (param i32 f64) (result f64)'
        " (f64.add (f64.convert_i32_s (local.get 0)) (local.get 1))))"
    )
    run = arkml("run", guest, "--invoke", "mix", "-5", "-0.25", "--json")

    assert run.status == 0
    assert run.json["result"] == -5.25


MISUSE = {
    "--frmes 5": "error: there is no option --frmes: did you mean --frames?",
    "--invoke resize": "--invoke resize takes 1 number (i32), 0 given",
    "--invoke resize x": "--invoke resize: 'x' is not an i32",
    "--invoke nothing": "exports no function 'nothing'; it exports ark_alloc",
    "--cmdlet x": "c_applet.wasm is not a cmdlet: it exports ark_applet_update () -> ()",
    "--input README.md": "--input is for --invoke and servlets, not for an applet",
    "--limit speed=9": "there is no limit 'speed': there are\n  module_bytes, ",
    "--limit rws=9": "there is no limit 'rws': did you mean rows? There are\n  module_bytes, ",
    "--limit rows=-1": "rows=-1: it takes a whole number above zero",
    "--limit rows": "--limit rows: it takes NAME=VALUE",
    "--log-level loud": "there is no log level 'loud': there are trace, debug",
    "--policy README.md": "README.md: not an ONNX model",
    "--policy gone.onnx": "error: gone.onnx cannot be read: No such file or directory",
    "--policy .": "error: . cannot be read: Is a directory",
    "--invoke resize --input gone": "resize of c_applet.wasm is (i32) -> (i32): it takes no",
    "--dir gone": "--dir gone: gone is not a directory",
    "--frames 0": "error: --frames 0: it takes a whole number from 1\n",
    "--frames x": "error: --frames x: it takes a whole number from 1\n",
    "--instances 1.5": "error: --instances 1.5: it takes a whole number from 1\n",
    "--seed x": "error: --seed x: it takes a whole number\n",
    "--fps nan": "error: --fps nan: it takes a number from 0.01\n",
}


def test_bad_usage_is_one_sentence_and_exit_code_2():
    runs = arkml_for_each(["run", APPLET, *words.split()] for words in MISUSE)

    for run, sentence in zip(runs, MISUSE.values(), strict=True):
        assert run.status == 2
        assert sentence in run.err
        assert run.out == ""
        assert "Traceback" not in run.err


UNLOADABLE = {
    ("run",): "Missing argument 'GUEST'",
    ("run", "gone.wasm"): "gone.wasm cannot be read: No such file or directory",
    ("run", "README.md"): "README.md: the module is not WebAssembly",
    ("run", APPLET, "--limit", "memory_bytes=64KiB"): "more than the 65,536 allowed",
    ("run", APPLET, "--limit", "module_bytes=1KiB"): "more than the 1,024 allowed",
    ("run", GUESTS / "wasi_command.wasm"): "WASI is not granted (--wasi)",
    ("walk",): "No such command 'walk'",
}


def test_what_cannot_be_loaded_is_exit_code_2_under_json_too():
    runs = arkml_for_each([*words, "--json"] for words in UNLOADABLE)

    for run, sentence in zip(runs, UNLOADABLE.values(), strict=True):
        assert run.status == 2
        assert sentence in run.json["error"]
        assert sentence in run.err


@pytest.mark.parametrize("words", [["hive"], ["hive", "token"], ["trials"]], ids=" ".join)
def test_a_group_without_its_command_says_so_after_its_help(words):
    run = arkml(*words)

    assert run.status == 2
    assert run.err.endswith(f"error: Missing command. (see `arkml {' '.join(words)} --help`)\n")


def test_a_missing_import_is_listed_and_can_be_stubbed(wat):
    guest = wat(
        '(module (import "ark-fog-v1" "fog__roll" (func $roll (result i32)))'
        ' (import "ark-time-v1" "time__time_utc" (func (param i64)))'
        ' (func (export "roll") (result i32) (call $roll)))',
    )
    mine = wat('(module (import "ark-fog-v1" "fog__roll" (func $roll (result i32)))'
               ' (func (export "roll") (result i32) (call $roll)))', "mine.wat")  # fmt: skip
    refused = arkml("run", guest)
    stubbed = arkml("run", mine, "--stub-missing", "--json")

    assert refused.status == 2
    assert "guest.wat needs 2 imports that this host does not have:" in refused.err
    assert "ark-time-v1.time__time_utc  wants (i64) -> (), the host has (i32) -> ()" in refused.err
    assert stubbed.status == 0
    assert stubbed.json["result"] == 2


def test_wasi_is_granted_with_arguments_and_standard_input():
    guest = GUESTS / "wasi_command.wasm"
    run = arkml("run", guest, "--wasi", "--cmdlet", "0 'a b'", stdin="a line\n")

    assert run.status == 0
    assert run.out == (
        "hello from a WASI command\nargument 0\nargument a b\nread a line\ngoodbye\n"
    )
    assert "wasi_command.wasm: _start" in run.err


def test_the_status_of_a_wasi_command_is_told_and_its_output_leaves_json_alone():
    run = arkml("run", GUESTS / "wasi_command.wasm", "--wasi", "--cmdlet", "3", "--json")

    assert run.status == 1
    assert run.json == {
        "error": "wasi_command.wasm exited with status 3", "type": "GuestExit", "status": 3
    }  # fmt: skip
    assert "hello from a WASI command" in run.err


def test_a_fleet_answers_all_guests_and_says_once_what_they_all_say():
    run = arkml("run", APPLET, "--instances", "50", "--frames", "60")

    assert run.status == 0
    assert "running 50 x c_applet.wasm (applet)" in run.err
    assert run.err.count("frame 51: 8 episodes") < 50
    assert "lines of other guests that say the same" in run.err
    assert re.search(r"guests +50\b", run.out)
    assert re.search(r"rows +24,000 \(400 a frame\)", run.out)


def test_a_fleet_ends_when_all_guests_have_failed(wat):
    guest = wat(FRAMES.replace('update")', 'update") unreachable'))
    run = arkml("run", guest, "--instances", "3", "--frames", "4")

    assert run.status == 1
    assert "failed in frame 1 of 4" in run.err
    assert "error: all 3 guests failed, the first: guest.wat#0 trapped: unreachable" in run.err
    assert re.search(r"guests +3, 3 failed", run.out)
    assert re.search(r"frames +0\b", run.out)


def test_a_fleet_of_which_nothing_is_left_has_the_usual_object_with_the_error(wat):
    guest = wat(FRAMES.replace('update")', 'update") unreachable'))
    run = arkml("run", guest, "--instances", "3", "--frames", "4", "--json")
    bench = arkml("bench", guest, "--instances", "3", "--json")

    assert run.status == bench.status == 1
    assert (run.json["instances"], run.json["failed"], run.json["frames"]) == (3, 3, 0)
    assert run.json["error"].startswith("all 3 guests failed, the first: guest.wat#0 trapped")
    assert bench.json["error"].startswith("all 3 guests failed, the first: guest.wat#0 trapped")


def test_a_guest_that_fails_before_its_first_frame_is_said_to(wat):
    guest = wat(FRAMES[:-1] + ' (func (export "_initialize") unreachable))')
    run = arkml("run", guest, "--frames", "4")

    assert run.status == 1
    assert "failed while it was initialized" in run.err
    assert "in frame" not in run.err


def test_a_limit_that_was_reached_is_named():
    run = arkml("run", APPLET, "--frames", "5", "--limit", "rows=3")
    document = arkml("run", APPLET, "--frames", "5", "--limit", "rows=3", "--json").json

    assert re.search(r"errors +INVALID_ARGUMENTS 1", run.out)
    assert re.search(r"limits reached +TooManyRows 1", run.out)
    assert document["limits"] == {"TooManyRows": 1}


def test_the_account_is_a_table_with_v_and_part_of_the_document():
    shown = arkml("run", APPLET, "--frames", "5", "-v")
    plain = arkml("run", APPLET, "--frames", "5")
    account = arkml("run", APPLET, "--frames", "5", "--json").json["account"]

    assert re.search(r"models of the guest +\d", shown.out)
    assert re.search(r"time charged in all +\d", shown.out)
    assert "account" not in plain.out
    assert account["wasm_seconds"] > 0
    assert account["total_bytes"] == sum(
        account[f"{kind}_bytes"] for kind in ("memory", "column", "session", "agent")
    )


def test_a_cmdlet_without_arguments_needs_no_allocator(wat):
    guest = wat(
        '(module (memory (export "memory") 1)'
        ' (func (export "ark_cmdlet_run") (param i32 i32) (result i32) (i32.const 0)))'
    )
    bare = arkml("run", guest)
    given = arkml("run", guest, "--cmdlet", "x")

    assert bare.status == 0, bare.err
    assert given.status != 0
    assert "guest.wat exports no ark_alloc and ark_free" in given.err


def test_bytes_for_a_guest_without_allocator_are_refused(wat):
    guest = wat('(module (func (export "f") (param i32 i32) (result i32) (i32.const 0)))')
    run = arkml("run", guest, "--invoke", "f", "--input", "README.md")

    assert run.status == 2
    assert "guest.wat exports no ark_alloc and ark_free, so f takes no --input" in run.err


def test_nothing_returned_is_no_file(tmp_path):
    out = tmp_path / "out.bin"
    run = arkml("run", APPLET, "--frames", "5", "--limit", "run_seconds=60", "--out", out)
    over = arkml("run", APPLET, "--out", APPLET)

    assert run.status == 1
    assert f"error: c_applet.wasm returned nothing: {out} is not written" in run.err
    assert re.search(r"frames +5\b", run.out)
    assert not out.exists()
    assert over.status == 2
    assert "is the file that is read: name another one to write" in over.err


def test_a_fleet_with_failed_guests_goes_on_and_fails_at_the_end(wat):
    guest = wat(
        '(module (import "wasi_snapshot_preview1" "random_get"'
        " (func $draw (param i32 i32) (result i32)))"
        ' (memory (export "memory") 1) (func (export "ark_applet_update")'
        " (drop (call $draw (i32.const 8) (i32.const 1)))"
        " (if (i32.and (i32.load8_u (i32.const 8)) (i32.const 1)) (then unreachable))))"
    )
    run = arkml("run", guest, "--wasi", "--instances", "80", "--frames", "2", "--json")

    assert run.status == 1
    assert run.json.get("frames") == 2, run.err
    assert 0 < run.json["failed"] < 80
    assert f"{run.json['failed']} of 80 guests failed, the first: guest.wat#" in run.err
    assert run.json["error"].startswith(f"{run.json['failed']} of 80 guests failed")


def test_frames_are_paced_and_late_ones_counted(wat):
    run = arkml("run", wat(FRAMES), "--frames", "20", "--fps", "100", "--json")
    hurried = arkml("run", wat(FRAMES), "--frames", "20", "--fps", "10000000", "--json")

    assert run.json["fps"] == 100
    assert run.json["late_frames"] < 20
    assert hurried.json["late_frames"] == 20


def test_a_policy_overrides_what_the_guest_loads():
    policy = GUESTS / "policies" / "pointmass.onnx"
    run = arkml("run", APPLET, "--policy", policy, "--frames", "10", "--json")
    wrong = arkml("run", APPLET, "--policy", POLICIES / "det.onnx", "--frames", "10", "--json")

    assert run.json["rows"] == 80
    assert wrong.status == 1
    assert wrong.json["rows"] == wrong.json["submits"] == 0
    assert wrong.json["errors"] == {"INVALID_ARGUMENTS": 1}
    assert "the model takes 8 features (obs: 8), 2 are given" in wrong.err
    assert wrong.json["error"].startswith(f"{POLICIES / 'det.onnx'} never acted: nothing was sub")
    assert "INVALID_ARGUMENTS 1" in wrong.json["error"]
    assert "error" not in run.json


def test_seed_and_determinism_reach_the_policies():
    def draws(*words):
        run = arkml("run", INFER, "--cmdlet", "infer stochastic", *words)
        return run.status, re.findall(r"mean (\S+), std (\S+),", run.err)

    assert draws("--seed", "7") == draws("--seed", "7")
    assert draws("--seed", "8") != draws("--seed", "7")
    assert draws("--deterministic")[0] == 1


def test_a_frame_has_a_second_unless_a_limit_says_otherwise(wat):
    default = arkml("run", wat(LOOP))
    shorter = arkml("run", wat(LOOP), "--limit", "run_seconds=100ms", "--json")

    assert default.status == shorter.status == 1
    assert "over its budget of 1 s" in default.err
    assert shorter.json["type"] == "GuestTimeout"
    assert "over its budget of 0.1 s" in shorter.json["error"]


def test_a_call_of_anything_else_takes_its_time_unless_a_limit_says_otherwise(wat):
    spin = wat(
        '(module (func (export "spin") (param $n i64) (loop $again'
        " (local.set $n (i64.sub (local.get $n) (i64.const 1)))"
        " (br_if $again (i64.ne (local.get $n) (i64.const 0))))))"
    )
    limited = arkml("run", spin, "--invoke", "spin", "0", "--limit", "run_seconds=0.05")
    free = arkml("run", spin, "--invoke", "spin", "3000000000", "--json")

    assert limited.status == 1
    assert "over its budget of 0.05 s" in limited.err
    assert free.status == 0
    assert free.json["seconds"] > 0.5


def test_no_policy_library_is_loaded_for_a_guest_without_policy(wat):
    code = (
        "import runpy, sys\n"
        f"sys.argv = ['arkml', 'run', {str(wat(FRAMES))!r}, '--frames', '1', '--json']\n"
        "try:\n    runpy.run_module('arkml', run_name='__main__')\n"
        "except SystemExit:\n"
        "    print(*{'onnx', 'onnxruntime', 'tract', 'rich'} & set(sys.modules), file=sys.stderr)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert run.stderr == "running guest.wat (applet)\n\n"


def test_a_watched_policy_acts_and_is_told():
    run = arkml("run", APPLET, "--policy", POINTMASS, "--watch", "--frames", "30")

    assert run.status == 0
    assert f"policy {POINTMASS} answers from the next frame on" in run.err


COUNTER = (
    '(module (memory (export "memory") 1) (func (export "ark_applet_update")'
    " (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const {step})))))"
)


def test_a_watched_module_is_reloaded_and_a_broken_one_is_not(tmp_path):
    guest = tmp_path / "npc.wat"
    guest.write_text(COUNTER.format(step=1))
    trace = ["--trace", tmp_path / "npc.trace"]
    command = [sys.executable, "-m", "arkml", "run", guest, "--watch", "--fps", "100", *trace]
    run = subprocess.Popen(
        [*command, "--frames", "1000000"], cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        told = iter(run.stderr.readline, "")

        def until(text):
            return next(line for line in told if text in line)

        until("running npc.wat")
        guest.write_text(COUNTER.format(step=2))
        kept = until("npc.wat: reloaded ")
        assert "its state was kept: only code has changed; the trace goes on in " in kept
        assert kept.rstrip().endswith("npc-2.trace")
        guest.write_text("(module (func")
        until("npc.wat: not reloaded, the module before goes on")
        guest.write_text(COUNTER.format(step=1).replace("(i32.store", "unreachable (i32.store"))
        until("npc.wat: reloaded ")
        until("failed right after a reload, and goes on with the module before")
        guest.write_text(COUNTER.format(step=3))
        until("npc.wat: reloaded ")
        assert run.poll() is None
        run.send_signal(signal.SIGINT)
        assert run.wait(60) == 130
    finally:
        run.kill()
        run.communicate()


def test_watch_is_for_frames():
    refused = arkml("run", GUESTS / "wasi_command.wasm", "--wasi", "--watch")

    assert refused.status == 2
    assert "--watch does not go with" in refused.err
