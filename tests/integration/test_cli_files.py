"""`arkml inspect`, `describe`, `pack`, `bench`, `--help` and `--version`."""

import os
import pty
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
from tests.integration.command_line import (
    CORRIDOR,
    ENVIRONMENT,
    GUESTS,
    POLICIES,
    ROOT,
    arkml,
    arkml_for_each,
    with_spec,
)

from arkml import record
from arkml.hive.protocol.settings import Settings
from arkml.learning.normalizer import Normalizer
from arkml.learning.ppo import Ppo

ECHO = GUESTS / "c_echo.wasm"


def test_inspect_shows_what_a_module_is_and_wants():
    run = arkml("inspect", GUESTS / "ark_api" / "cmdlet_infer_017.wasm")

    assert run.status == 0
    assert re.search(r"kind +cmdlet", run.out)
    assert re.search(r"ark-api crate +0\.17\.0-pre\.43", run.out)
    assert re.search(r"missing +nothing", run.out)
    assert re.search(r"ARK_API_ML +0xaed601094f073c83 +ark-ml-v4", run.out)
    assert re.search(
        r"Imports from ark-ml-v1\n.*?ml__drop_future +\(i64\) -> \(i32\)", run.out, re.DOTALL
    )
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


@pytest.mark.parametrize("spec", [{"behaviors": {"corr": {"actoins": {}}}}, [1], 5])
def test_inspect_says_what_is_wrong_with_a_declaration(tmp_path, spec):
    (tmp_path / "odd.wasm").write_bytes(with_spec(CORRIDOR, spec))
    shown, run = (arkml("inspect", "odd.wasm", *more, cwd=tmp_path) for more in ([], ["--json"]))

    assert run.status == 0
    assert run.json["spec"]["behaviors"] == {}
    assert run.json["spec"]["refused"].startswith("the custom section arkml.spec")
    assert "declares" in shown.out


def test_inspect_shows_the_declaration_of_agents():
    run = arkml("inspect", GUESTS / "c_choosers.wasm", "--json")
    text = arkml("inspect", GUESTS / "c_choosers.wasm", COLUMNS="160").out

    assert run.json["spec"]["refused"] is None
    assert run.json["spec"]["behaviors"]["driver"] == {
        "observations": ["position [2]", "gear [1]"],
        "continuous": 2,
        "discrete": [3],
        "names": [],
        "choices": [],
        "partial": False,
        "copies": None,
    }
    assert "picker: cell [1], target [1], flag [1]; branches of 3, 2 choices" in text


def test_inspect_shows_what_people_call_actions_and_choices(tmp_path):
    named = {
        "discrete": [2, 3], "names": ["run", "jump", "gear"], "choices": [["no", "yes"], []],
    }  # fmt: skip
    (tmp_path / "named.wasm").write_bytes(with_spec(CORRIDOR, {"actions": named}))
    shown, run = (
        arkml("inspect", "named.wasm", *more, cwd=tmp_path, COLUMNS="160")
        for more in ([], ["--json"])
    )

    assert "branches of 2, 3 choices, called run, jump, gear; choices (no, yes)" in shown.out
    declared = run.json["spec"]["behaviors"]["*"]
    assert (declared["names"], declared["choices"]) == (named["names"], named["choices"])


def test_inspect_names_parameters_and_what_does_not_fit(tmp_path):
    (tmp_path / "odd.wat").write_text(
        '(module (import "ark-ml-v1" "ml__drop_future" (func (param i64) (result i32)))'
        ' (import "ark-time-v1" "time__time_utc" (func (param i64))))'
    )
    run = arkml("inspect", "odd.wat", "-v", cwd=tmp_path)

    assert run.status == 0
    assert "(handle i64) -> (i32)" in run.out
    assert "(i64) -> ()  ← missing, the host has (i32) -> ()" in run.out


def test_inspect_says_which_imports_must_be_granted():
    run = arkml("inspect", GUESTS / "wasi_command.wasm")

    assert "Imports from wasi_snapshot_preview1 (granted by --wasi)" in run.out
    assert re.search(r"proc_exit +\(i32\) -> \(\)", run.out)


def test_inspect_refuses_what_is_no_module():
    run = arkml("inspect", "README.md")

    assert run.status == 2
    assert "README.md: the module is not WebAssembly" in run.err


MODEL, CONTAINER = POLICIES / "det.onnx", POLICIES / "cervo" / "plain.onnx.crvo"
GUEST = GUESTS / "c_applet.wasm"
NO_MODULE, NO_MODEL = "not a WebAssembly module: `arkml desc", "not an ONNX or Cervo file: `arkml i"
WRONG = {
    ("run", MODEL): f"{MODEL} is an ONNX model, {NO_MODULE}",
    ("inspect", CONTAINER): f"{CONTAINER} is a Cervo container, {NO_MODULE}",
    ("bench", MODEL): f"{MODEL} is an ONNX model, {NO_MODULE}",
    ("run", "empty"): "empty is empty: a WebAssembly module is expected",
    ("inspect", "empty"): "empty is empty: a WebAssembly module is expected",
    ("describe", GUEST): f"{GUEST} is a WebAssembly module, {NO_MODEL}",
    ("pack", GUEST): f"{GUEST} is a WebAssembly module, {NO_MODEL}",
    ("pack", "empty"): "empty is empty: an ONNX or Cervo file is expected",
    ("run", GUEST, "--policy", GUEST): f"{GUEST} is a WebAssembly module, {NO_MODEL}",
    ("bench", GUEST, "--policy", "empty"): "empty is empty: an ONNX or Cervo file is expected",
    ("describe", "gone"): "gone cannot be read: No such file or directory",
    ("inspect", "gone"): "gone cannot be read: No such file or directory",
    ("pack", "folder"): "folder cannot be read: Is a directory",
    ("bench", "folder"): "folder cannot be read: Is a directory",
}


def test_a_file_of_the_wrong_kind_is_told_what_it_is(tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda words: arkml(*words, cwd=tmp_path), WRONG))

    for run, sentence in zip(runs, WRONG.values(), strict=True):
        assert run.status == 2
        assert run.err.startswith(f"error: {sentence}")
        assert run.err.count("\n") == 1
        assert run.out == ""


def test_describe_shows_inputs_outputs_size_and_verdict():
    run = arkml("describe", POLICIES / "stoch.onnx")

    assert run.status == 0
    assert re.search(r"size +1\.1 KiB", run.out)
    assert re.search(r"verdict +accepted", run.out)
    assert re.search(r"epsilon +epsilon +rows x 3", run.out)
    assert re.search(r"actions +actions +rows x 3", run.out)


@pytest.mark.parametrize(
    ("batch", "why"), [("N", "what it gives for a row depends on"), (1, "the file is for 1 row")]
)
def test_describe_says_why_rows_run_one_by_one(tmp_path, batch, why):
    obs, actions = (
        onnx.helper.make_tensor_value_info(name, 1, [batch, 8]) for name in ("obs", "actions")
    )
    node = onnx.helper.make_node("Softmax", ["obs"], ["actions"], axis=0)
    graph = onnx.helper.make_graph([node], "g", [obs], [actions])
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save_model(
        onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), tmp_path / "one.onnx"
    )
    run = arkml("describe", tmp_path / "one.onnx")

    assert "rows run one by one: " in run.out
    assert why in " ".join(run.out.split())


def ambiguous(folder):
    """A policy of the corridor with two outputs, either of which could act."""
    ports = {
        name: onnx.helper.make_tensor_value_info(name, 1, ["N", width])
        for name, width in {"obs": 6, "53": 2, "24": 2}.items()
    }
    weights = onnx.helper.make_tensor("w", 1, [6, 2], [0.0] * 12)
    nodes = [
        onnx.helper.make_node("MatMul", ["obs", "w"], ["53"]),
        onnx.helper.make_node("Exp", ["53"], ["24"]),
    ]
    graph = onnx.helper.make_graph(
        nodes, "g", [ports["obs"]], [ports["53"], ports["24"]], [weights]
    )
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save_model(
        onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), folder / "two.onnx"
    )
    return folder / "two.onnx"


def test_an_output_that_is_named_acts_in_every_command(tmp_path):
    policy = ambiguous(tmp_path)
    guest, packed = CORRIDOR, tmp_path / "two.crvo"
    refused = arkml("describe", policy, "--json")
    named = arkml("describe", policy, "--policy-output", "53", "--json")
    frames = ("--frames", 3)
    ran, smoked, benched, wrong, without = arkml_for_each(
        [
            ("run", guest, *frames, "--policy", policy, "--policy-output", "53", "--json"),
            ("smoke", guest, *frames, "--policy", policy, "--policy-output", "53", "--json"),
            ("bench", guest, *frames, "--policy", policy, "--policy-output", "53", "--json"),
            ("run", guest, *frames, "--policy", policy, "--policy-output", "7"),
            ("run", guest, *frames, "--policy-output", "53"),
        ]
    )
    arkml("pack", policy, "--policy-output", "24", "-o", packed)

    assert (refused.status, refused.json["accepted"]) == (2, False)
    assert "--policy-output NAME" in refused.json["verdict"]
    assert (named.status, named.json["acts"]) == (0, "53 acts, no value")
    assert [each.status for each in (ran, smoked, benched)] == [0, 0, 0]
    assert wrong.status == 2
    assert "two.onnx: the model has no output '7', only 53: 2, 24: 2" in wrong.err
    assert without.status == 2
    assert "--policy-output is about a policy: it takes --policy" in without.err
    assert arkml("describe", packed, "--json").json["acts"] == "actions acts, no value"


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


def test_pack_does_not_write_over_its_model(tmp_path):
    model, data = tmp_path / "model.onnx", MODEL.read_bytes()
    model.write_bytes(data)
    (tmp_path / "link.onnx").symlink_to("model.onnx")
    (tmp_path / "hard.onnx").hardlink_to(model)
    targets = ["model.onnx", "./model.onnx", "link.onnx", "hard.onnx"]
    runs = [arkml("pack", "model.onnx", "-o", target, cwd=tmp_path) for target in targets]

    assert [run.status for run in runs] == [2] * 4
    assert runs[0].err == (
        "error: model.onnx is the file that is read: name another one to write\n"
    )
    assert runs[2].err == (
        "error: link.onnx is model.onnx, a file that is read: name another one to write\n"
    )
    assert model.read_bytes() == data


def test_pack_replaces_a_container_as_a_whole_and_through_a_link(tmp_path):
    (tmp_path / "real.crvo").write_bytes(b"old")
    (tmp_path / "real.crvo").chmod(0o640)
    (tmp_path / "link.crvo").symlink_to("real.crvo")
    run = arkml("pack", MODEL, "-o", "link.crvo", cwd=tmp_path)

    assert run.status == 0
    assert (tmp_path / "link.crvo").is_symlink()
    assert (tmp_path / "real.crvo").read_bytes()[:4] == b"CRVO"
    assert (tmp_path / "real.crvo").stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.crvo", "real.crvo"]


def test_pack_leaves_what_was_there_if_it_cannot_write_all_of_it(tmp_path):
    target = tmp_path / "kept.crvo"
    target.write_bytes(b"old")
    words = sys.executable, "-m", "arkml", "pack", POLICIES / "mlp_f256_a3.onnx"
    run = subprocess.run(  # no file may grow beyond a kilobyte
        ["sh", "-c", 'ulimit -f 1; exec "$@" -o kept.crvo', "sh", *words],
        cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    nowhere = arkml("pack", MODEL, "-o", "gone/kept.crvo", cwd=tmp_path)

    assert run.returncode == nowhere.status == 2
    assert run.stderr == "error: kept.crvo cannot be written: File too large\n"
    assert nowhere.err == "error: gone/kept.crvo cannot be written: No such file or directory\n"
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_pack_refuses_what_would_not_load():
    packed = arkml("pack", POLICIES / "cervo" / "plain.onnx.crvo", "-o", os.devnull)
    garbage = arkml("pack", "README.md", "-o", os.devnull, "--json")

    assert packed.status == garbage.status == 2
    assert "plain.onnx.crvo is a Cervo container already: use it as it is" in packed.err
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


def test_bench_fails_with_a_policy_that_never_acts_and_refuses_odd_numbers():
    idle = arkml("bench", GUEST, "--policy", MODEL, "--frames", "5", "--json")
    odd = arkml("bench", GUEST, "--warmup", "-1")

    assert idle.status == 1
    assert "det.onnx never acted" in idle.json["error"]
    assert idle.json["frames"] == 5
    assert odd.status == 2
    assert odd.err == "error: --warmup -1: it takes a whole number from 0\n"


def test_bench_measures_calls_with_bytes_but_nothing_that_runs_once():
    calls = arkml("bench", GUESTS / "c_servlet.wasm", "--frames", "5", "--json")
    once = arkml("bench", GUESTS / "wasi_command.wasm", "--wasi")

    assert calls.json["function"] == "ark_servlet_request"
    assert once.status == 2
    assert "cannot be called again and again" in once.err


COMMANDS = (
    "new", "run", "train", "evaluate", "hive", "smoke", "inspect", "describe", "pack", "bench",
    "sdk",
)  # fmt: skip


def test_every_command_explains_itself_with_examples():
    plain, *runs = arkml_for_each([["--help"], *([command, "--help"] for command in COMMANDS)])

    assert plain.status == 0
    assert all(f" {command} " in plain.out for command in COMMANDS)
    for command, run in zip(COMMANDS, runs, strict=True):
        assert run.status == 0
        assert re.search(rf"Examples: *\n *\n arkml {command} .*\n arkml {command} ", run.out)
    assert re.search(r"Examples: *\n *\n arkml new .*\n arkml run .*\n arkml train ", plain.out)


def test_the_version_names_what_matters():
    run = arkml("--version")

    assert run.status == 0
    assert re.fullmatch(r"arkml .+ \(wasmtime 50\..+, onnxruntime 1\..+\)\n", run.out)


def test_the_version_says_why_guests_run_in_python():
    run = arkml("--version", ARKML_PURE="1")

    assert run.out.splitlines()[1:] == ["guests run on one thread, in Python: ARKML_PURE is set"]


def test_a_terminal_gets_color_and_a_progress_bar_after_a_second(tmp_path):
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


def test_inspect_says_which_agents_do_not_see_all():
    run = arkml("inspect", GUESTS / "c_maze.wasm", "--json")
    text = arkml("inspect", GUESTS / "c_maze.wasm", COLUMNS="160").out

    assert run.json["spec"]["behaviors"]["maze"]["partial"] is True
    assert "maze: sign [1], end [1]; branches of 3 choices; partial" in text


def rows_played(policy, guest, path):
    """The rows of a recording with noise."""
    record(guest, policy, path, frames=60, deterministic=False, seed=3)
    with np.load(path) as file:
        return {name: file[name] for name in file.files if name != "about"}


def test_pack_makes_files_of_a_policy_with_memory_that_act_as_it_does(tmp_path):
    settings = Settings(4, 1, branches=(3,), hidden=8, memory=6, seed=1)
    policy = tmp_path / "echo.onnx"
    policy.write_bytes(Ppo(settings, Normalizer(4, active=True)).policy().model)
    runs = [arkml("pack", policy), arkml("pack", policy, "--mlagents")]
    names = ("echo.crvo", "echo.mlagents.onnx")
    expected = rows_played(policy, ECHO, tmp_path / "onnx.npz")

    assert [run.status for run in runs] == [0, 0]
    for name in names:
        found = rows_played(tmp_path / name, ECHO, tmp_path / "rows.npz")
        assert found.keys() == expected.keys() > {"action", "features"}
        for column, values in expected.items():
            np.testing.assert_array_equal(found[column], values)
    assert len(np.unique(expected["action"])) == 3
    described = arkml("describe", tmp_path / "echo.mlagents.onnx", "--json").json
    assert described["accepted"] is True
    assert described["acts"] == (
        "discrete_actions acts, the value is value_estimate, states: recurrent_in from"
        " recurrent_out, for guests that declare branches"
    )


def test_pack_gives_the_form_of_ml_agents_to_what_our_learners_export_only(tmp_path):
    run = arkml("pack", MODEL, "--mlagents", "-o", tmp_path / "theirs.onnx")

    assert run.status == 2
    assert f"{MODEL.name}: only policies that a learner of arkml has exported" in run.err
    assert list(tmp_path.iterdir()) == []
