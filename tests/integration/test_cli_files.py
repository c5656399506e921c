"""`arkml inspect`, `describe`, `pack`, `bench`, `--help` and `--version`."""

import os
import pty
import re
import subprocess
import sys

import onnx
from tests.integration.command_line import (
    ENVIRONMENT,
    GUESTS,
    POLICIES,
    ROOT,
    arkml,
    arkml_for_each,
)


def test_inspect_shows_what_a_module_is_and_wants():
    run = arkml("inspect", GUESTS / "ark_api" / "cmdlet_infer_017.wasm")

    assert run.status == 0
    assert re.search(r"kind +cmdlet", run.out)
    assert re.search(r"ark-api crate +0\.17\.0-pre\.43", run.out)
    assert re.search(r"missing +nothing", run.out)
    assert re.search(r"ARK_API_ML +0xaed601094f073c83 +ark-ml-v4", run.out)
    assert re.search(r"ark-ml-v1\.ml__drop_future +\(i64\) -> \(i32\) +\(handle i64\)", run.out)
    assert "ark_get_alloc_stats" in run.out


def test_inspect_lays_what_is_missing_beside_what_there_is(tmp_path):
    (tmp_path / "odd.wat").write_text(
        '(module (import "ark-fog-v1" "fog__roll" (func (param i64)))'
        ' (import "ark-time-v1" "time__time_utc" (func (param i64)))'
        ' (import "wasi_snapshot_preview1" "sched_yield" (func (result i32)))'
        ' (memory 1 2 shared) (func (export "f") (param i32)))'
    )
    run = arkml("inspect", "odd.wat", "--json", cwd=tmp_path)
    found = {entry["name"]: (entry["wants"], entry["met"]) for entry in run.json["imports"]}

    assert run.status == 0
    assert found == {
        "fog__roll": ("(i64) -> ()", False),
        "time__time_utc": ("(i64) -> ()", False),
        "sched_yield": ("() -> (i32)", True),
    }
    assert run.json["missing"] == ["ark-fog-v1.fog__roll", "ark-time-v1.time__time_utc"]
    assert "shared memory" in run.json["refused"]


def test_inspect_refuses_what_is_no_module():
    run = arkml("inspect", "README.md")

    assert run.status == 2
    assert "README.md: the module is no WebAssembly" in run.err


def test_describe_shows_inputs_outputs_size_and_verdict():
    run = arkml("describe", POLICIES / "stoch.onnx")

    assert run.status == 0
    assert re.search(r"size +1\.1 KiB", run.out)
    assert re.search(r"verdict +accepted", run.out)
    assert re.search(r"epsilon +epsilon +rows x 3", run.out)
    assert re.search(r"actions +actions +rows x 3", run.out)


def test_describe_says_why_a_model_is_rejected(tmp_path):
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"this is not a model")
    run = arkml("describe", path, "--json")

    assert run.status == 2
    assert run.json["accepted"] is False
    assert "not an ONNX model" in run.json["verdict"]


def test_pack_makes_a_container_with_the_weights_that_lie_beside_the_model(tmp_path):
    model = onnx.load(POLICIES / "det.onnx")
    onnx.save_model(
        model, tmp_path / "split.onnx", save_as_external_data=True, location="weights.bin",
        size_threshold=0,
    )  # fmt: skip
    run = arkml("pack", "split.onnx", cwd=tmp_path)
    moved = tmp_path / "elsewhere.crvo"
    (tmp_path / "split.crvo").rename(moved)

    assert run.status == 0
    assert "split.crvo: " in run.out
    assert arkml("describe", moved, "--json").json["parameters"] == 195


def test_pack_refuses_what_would_not_load():
    packed = arkml("pack", POLICIES / "cervo" / "plain.onnx.crvo", "-o", os.devnull)
    garbage = arkml("pack", "README.md", "-o", os.devnull, "--json")

    assert packed.status == garbage.status == 2
    assert "is a Cervo container already" in packed.err
    assert "README.md: not an ONNX model" in garbage.json["error"]


def test_bench_measures_frames_and_fleets():
    alone = arkml("bench", GUESTS / "c_applet.wasm", "--frames", "50")
    together = arkml(
        "bench", GUESTS / "c_applet.wasm", "--frames", "20", "--instances", "20", "--json"
    )

    assert alone.status == together.status == 0
    assert re.search(r"frames +50 after 50 that do not count", alone.out)
    for name in ("min", "median", "p99", "max", "spread"):
        assert re.search(rf"{name} +(± )?[\d.]+ (µs|ms)", alone.out)
        assert together.json["seconds"][name] >= 0
    assert together.json["rows"] == 20 * 20 * 8


def test_bench_measures_calls_with_bytes_but_nothing_that_runs_once():
    calls = arkml("bench", GUESTS / "c_servlet.wasm", "--frames", "5", "--json")
    once = arkml("bench", GUESTS / "wasi_command.wasm", "--wasi")

    assert calls.json["function"] == "ark_servlet_request"
    assert once.status == 2
    assert "cannot be called again and again" in once.err


COMMANDS = ("run", "smoke", "inspect", "describe", "pack", "bench")


def test_every_command_explains_itself_with_examples():
    plain, *runs = arkml_for_each([["--help"], *([command, "--help"] for command in COMMANDS)])

    assert plain.status == 0
    assert all(f" {command} " in plain.out for command in COMMANDS)
    for command, run in zip(COMMANDS, runs, strict=True):
        assert run.status == 0
        assert f"arkml {command} " in run.out.partition("Examples:")[2]


def test_the_version_names_what_matters():
    run = arkml("--version")

    assert run.status == 0
    assert re.fullmatch(r"arkml .+ \(wasmtime 50\..+, onnxruntime 1\..+\)\n", run.out)


def test_a_terminal_gets_colour_and_a_progress_bar_after_a_second(tmp_path):
    (tmp_path / "frames.wat").write_text(
        '(module (memory (export "memory") 1) (func (export "ark_applet_update")))'
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "arkml", "run", tmp_path / "frames.wat", "--frames", "45", "--fps",
         "30"],
        cwd=ROOT, env={**ENVIRONMENT, "TERM": "xterm-256color", "COLUMNS": "100"},
        stdin=theirs, stdout=theirs, stderr=theirs,
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = b""
        while chunk := _read(ours):
            shown += chunk
    os.close(ours)
    text = shown.decode()

    assert process.returncode == 0
    assert "/45" in text
    assert "━" in text
    assert "\x1b[1mframes.wat: ark_applet_update\x1b[0m" in text


def _read(descriptor):
    try:
        return os.read(descriptor, 4096)
    except OSError:  # the other end is closed
        return b""
