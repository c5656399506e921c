"""`arkml smoke`, as a user calls it."""

import re
from dataclasses import fields
from xml.etree import ElementTree

from tests.integration.command_line import (
    CORRIDOR,
    FRAMES,
    GUESTS,
    LOOP,
    POLICIES,
    arkml,
    with_spec,
)
from tests.integration.guest_text import (
    ACTIONS,
    FEATURES,
    HANDLE,
    PUSH_TRAINING,
    SUBMIT_TRAINING,
    TRAIN,
    VALUES,
    asking,
    i32,
)

from arkml.limits import Limits

PATIENT = ("--limit", "run_seconds=60")
LIMITS = [field.name for field in fields(Limits)]
CHECKS = ["load", "link", "initialize", "run", "handles", "actions", "limits"]
ASK = """(import "ark-ml-v1" "ml__can_connect_to_hive"
  (func $can_connect (param i32 i32 i32 i32) (result i32)))
(memory (export "memory") 1)
(func $ask
  (drop (call $can_connect (i32.const 8) (i32.const 0) (i32.const 1) (i32.const 16))))"""
LEAK = f'(module {ASK} (func (export "ark_applet_update") (call $ask)))'
GROWING = """(module (memory (export "memory") 1)
  (func (export "ark_applet_update") (drop (memory.grow (i32.const 1)))))"""
FULL = """(module (memory (export "memory") 1)
  (func (export "ark_applet_update") (drop (memory.grow (i32.const 1000)))))"""
FILLING = """(module (memory (export "memory") 1)
  (func (export "ark_applet_update")
    (if (i32.lt_u (memory.size) (i32.const 80)) (then (drop (memory.grow (i32.const 1)))))))"""
LEAKING_CMDLET = f"""(module {ASK}
(func (export "ark_cmdlet_run") (param i32 i32) (result i32) (call $ask) (i32.const 0))
(func (export "ark_alloc") (param i32 i32) (result i32) (i32.const 64))
(func (export "ark_free") (param i32 i32 i32)))"""


def test_good_guests_pass_with_a_line_for_each_check(tmp_path):
    junit = tmp_path / "smoke.xml"
    guests = [GUESTS / "c_applet.wasm", GUESTS / "c_kinds.wasm", GUESTS / "c_servlet.wasm"]
    run = arkml("smoke", *guests, "--junit", junit)
    suites = ElementTree.parse(junit).getroot()

    assert run.status == 0, run.out
    lines = [line.split() for line in run.out.splitlines() if line.startswith(("  ok", "  FAIL"))]
    with_frames = [*CHECKS[:5], "memory", *CHECKS[5:]]
    assert [line[1] for line in lines] == [*with_frames, *CHECKS, *CHECKS]
    assert {line[0] for line in lines} == {"ok"}
    assert "120 frames of ark_applet_update, no trap" in run.out
    assert "1 handle live after 120 calls, 1 after 60" in run.out
    assert "960 rows, all finite" in run.out
    assert "3 of 3 guests passed" in run.out
    assert [suite.get("failures") for suite in suites] == ["0", "0", "0"]
    assert [case.get("name") for case in suites[1]] == CHECKS


def test_a_failed_check_is_exit_code_1_and_a_failure_in_junit(tmp_path):
    junit = tmp_path / "smoke.xml"
    run = arkml("smoke", GUESTS / "as_abort.wasm", GUESTS / "c_applet.wasm", "--junit", junit)
    suites = ElementTree.parse(junit).getroot()

    assert run.status == 1
    assert "FAIL  run         in call 3: as_abort.wasm panicked: frame 3 is too much" in run.out
    assert "1 of 2 guests passed" in run.out
    assert suites[0].get("failures") == "1"
    assert "frame 3 is too much" in suites[0].find("testcase/failure").get("message")


def test_each_way_to_fail_has_its_check(tmp_path):
    texts = {
        "leak.wat": LEAK,
        "growing.wat": GROWING,
        "full.wat": FULL,
        "filling.wat": FILLING,
        "cmdlet.wat": LEAKING_CMDLET,
        "loop.wat": LOOP,
        "import.wat": '(module (import "ark-fog-v1" "fog__roll" (func)))',
        "start.wat": "(module (func $start unreachable) (start $start))",
        "text.wat": "(module (oops))",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "spec.wasm").write_bytes(with_spec(CORRIDOR, {"behaviors": {"corr": {}}}))
    (tmp_path / "form.wasm").write_bytes(with_spec(CORRIDOR, {"actoins": {}}))
    run = arkml(
        "smoke",
        *texts,
        "spec.wasm",
        "form.wasm",
        "gone.wasm",
        "--limit",
        "run_seconds=500ms",
        "--json",
        cwd=tmp_path,
    )
    failed = {
        guest["guest"]: [check["name"] for check in guest["checks"] if not check["passed"]]
        for guest in run.json["guests"]
    }

    assert run.status == 1
    assert run.json["passed"] is False
    assert failed == {
        "leak.wat": ["handles"],
        "growing.wat": ["memory"],
        "full.wat": ["memory"],
        "filling.wat": [],
        "cmdlet.wat": ["handles"],
        "loop.wat": ["limits"],
        "import.wat": ["link"],
        "start.wat": ["initialize"],
        "text.wat": ["load"],
        "spec.wasm": ["spec"],
        "form.wasm": ["spec"],
        "gone.wasm": ["load"],
    }


def test_a_guest_that_learns_is_checked_with_a_hive_before_it_has_a_policy():
    learner, player = GUESTS / "c_pendulum.wasm", GUESTS / "c_applet.wasm"
    run = arkml("smoke", learner, player, "--hive", "embedded", "--json")
    trained, played = (
        {check["name"]: check for check in guest["checks"]} for guest in run.json["guests"]
    )

    assert run.status == 0, run.out
    assert re.fullmatch(
        r"its run has begun, and it pushed [1-9][\d,]+ rows", trained["training"]["detail"]
    )
    assert trained["run"]["detail"] == "120 frames of ark_applet_update, no trap"
    assert played["training"]["detail"] == "it asked for no run"


def test_agents_that_send_no_last_row_are_told_of(tmp_path):
    handle = f"(i64.load {i32(HANDLE)})"
    frame = f"(i64.load {i32(512)})"
    row = f"{i32(3)} (f32.const 0) {i32(FEATURES)} {i32(2)} {i32(0)} {i32(0)} (f32.const 1)"
    then = f"""(i64.store {i32(512)} (i64.add {frame} (i64.const 1)))
      (drop (call ${PUSH_TRAINING} {handle} {frame} {row}))
      (drop (call ${SUBMIT_TRAINING} {handle} {i32(ACTIONS)} {i32(1)} {i32(VALUES)} {i32(1)}))"""
    guest = asking(80, 4, then).replace(b'"memory") 1)', b'"memory") 2)')
    (tmp_path / "guest.wat").write_bytes(guest)
    run = arkml("smoke", tmp_path / "guest.wat", "--hive", "embedded")

    assert run.status == 0, run.out
    assert re.search(r"rows; \d+ agents have sent no row for long, and no last one", run.out)


def test_a_guest_whose_run_is_refused_has_asked_for_one(tmp_path):
    (tmp_path / "guest.wat").write_bytes(asking(-4, 4))
    run = arkml("smoke", tmp_path / "guest.wat", "--hive", "embedded")

    assert run.status == 1
    assert (
        f"FAIL  training    {TRAIN} answered INVALID_ARGUMENTS: 4 bytes at 0xfffffffc end outside"
        in run.out
    )


def test_a_misspelled_export_fails_beside_others(tmp_path):
    (tmp_path / "guest.wat").write_text(
        FRAMES.replace(")))", ')) (func (export "ark_initializer")))')
    )
    run = arkml("smoke", tmp_path / "guest.wat")

    assert run.status == 1
    assert (
        "FAIL  exports     nothing calls the export ark_initializer: did you mean ark_initialize?"
        in run.out
    )
    assert "120 frames of ark_applet_update, no trap" in run.out


def test_a_guest_whose_hive_does_not_answer_fails():
    run = arkml("smoke", GUESTS / "c_pendulum.wasm", "--hive", "localhost:1", *PATIENT)

    assert run.status == 1
    assert "FAIL  training    no hive answers at localhost:1" in run.out


def test_each_limit_that_was_reached_has_a_line():
    guest = GUESTS / "c_applet.wasm"
    run = arkml("smoke", guest, "--limit", "rows=3", *PATIENT)
    near = arkml("smoke", guest, *PATIENT)

    assert "FAIL  limits      import calls were refused: TooManyRows 1 time" in run.out
    assert re.search(r"ok    limits +slowest call .* of 1\.5 GiB", near.out)


def test_every_limit_has_a_line_with_what_the_guest_used_of_it():
    guest = GUESTS / "c_applet.wasm"
    run = arkml("smoke", guest, "--limit", "handles=77", "--limit", "call_seconds=none")
    lines = [line.split() for line in run.out.splitlines()]
    rows = {line[0]: line[1:] for line in lines if line and line[0] in LIMITS}

    assert list(rows) == LIMITS
    assert rows["handles"] == ["77", "1"]
    assert rows["guest_bytes"][:2] == ["1.5", "GiB"]
    assert rows["wasm_stack"] == ["512.0", "KiB", "-"]
    assert rows["call_seconds"][0] == "none"
    assert re.fullmatch(r"1 s [\d.]+ [mµ]?s", " ".join(rows["run_seconds"]))


def test_the_limits_are_in_the_document_too():
    guest = GUESTS / "c_applet.wasm"
    run = arkml("smoke", guest, GUESTS / "as_abort.wasm", "gone.wasm", "--json")
    good, failed, gone = (guest["limits"] for guest in run.json["guests"])

    assert list(good) == list(failed) == LIMITS
    assert gone == {}
    assert good["rows"] == {"limit": 65_536, "used": None}
    assert good["host_bytes"]["limit"] is None
    assert good["memory_bytes"] == {"limit": 256 << 20, "used": 2 << 16}
    assert good["module_bytes"]["used"] == guest.stat().st_size
    assert good["guest_bytes"]["used"] > good["memory_bytes"]["used"]
    assert 0 < good["run_seconds"]["used"] < 1


def test_the_limits_of_a_cmdlet_are_those_of_its_call():
    run = arkml("smoke", GUESTS / "ark_api" / "cmdlet_infer_016.wasm", "--json")
    (guest,) = run.json["guests"]

    assert guest["limits"]["run_seconds"]["limit"] == 60
    assert guest["limits"]["call_seconds"]["limit"] is None


def test_a_cmdlet_is_smoked_with_its_arguments():
    guest = GUESTS / "ark_api" / "cmdlet_infer_016.wasm"
    good = arkml("smoke", guest, "--cmdlet", "infer det", "--json")
    bad = arkml("smoke", guest, "--cmdlet", "fail it", "--json")

    assert good.status == 0
    assert bad.status == 1
    details = [check["detail"] for check in bad.json["guests"][0]["checks"]]
    assert details[-1] == ("cmdlet_infer_016.wasm failed with status 1: deliberate failure: it")


def test_a_failed_check_names_its_file(tmp_path):
    (tmp_path / "empty.wasm").touch()
    (tmp_path / "text.txt").write_text("no module")
    (tmp_path / "model.onnx").write_bytes((POLICIES / "det.onnx").read_bytes())
    run = arkml("smoke", "empty.wasm", "text.txt", "model.onnx", cwd=tmp_path)

    assert run.status == 1
    assert "FAIL  load        empty.wasm is empty: a WebAssembly module is expected" in run.out
    assert "FAIL  load        text.txt: the module is not WebAssembly" in run.out
    assert "FAIL  load        model.onnx is an ONNX model, not a WebAssembly module" in run.out


def test_a_policy_that_never_acts_is_a_failed_check():
    run = arkml("smoke", GUESTS / "c_applet.wasm", "--policy", POLICIES / "det.onnx")

    assert run.status == 1
    assert re.search(r"FAIL  actions     .*det\.onnx never acted: nothing was submitted", run.out)


def test_every_guest_is_given_all_of_standard_input():
    guest = GUESTS / "c_servlet.wasm"
    run = arkml("smoke", guest, guest, "--input", "-", "--json", stdin="hello")

    assert run.status == 0
    assert run.json["passed"] is True


def test_junit_is_not_written_over_a_guest(tmp_path):
    guest = tmp_path / "guest.wat"
    guest.write_text(LOOP)
    run = arkml("smoke", guest, "--junit", guest)

    assert run.status == 2
    assert guest.read_text() == LOOP


def test_bad_usage_is_exit_code_2_here_too():
    run = arkml("smoke", GUESTS / "c_applet.wasm", "--limit", "speed=9")

    assert run.status == 2
    assert "there is no limit 'speed'" in run.err
