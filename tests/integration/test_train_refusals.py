"""What `arkml train` refuses, and what it says when it cannot train."""

import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys

import pytest
from tests.children import children_of
from tests.integration.command_line import ENVIRONMENT, GUESTS, POLICIES, ROOT, arkml, start
from tests.integration.guest_text import (
    FEATURES,
    HANDLE,
    MODEL,
    PUSH_TRAINING,
    SUBMIT_TRAINING,
    TRAIN,
    asking,
    i32,
)
from tests.waiting import eventually

REACH, PENDULUM, CHOOSERS = (
    GUESTS / f"c_{name}.wasm" for name in ("reach", "pendulum", "choosers")
)
DET = POLICIES / "det.onnx"
QUICK = {"algorithm": "drawn", "hidden": 32, "batch_size": 64, "memory_min_size": 640}


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "quick.json"
    path.write_text(json.dumps(QUICK))
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The directory of a training of c_reach.wasm."""
    folder = tmp_path_factory.mktemp("trained")
    config = folder / "quick.json"
    config.write_text(json.dumps(QUICK))
    done = arkml("train", REACH, "--frames", "50", "--config", config, "--out", folder / "out")
    assert done.status == 0, done.err
    return folder / "out"


def contents(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.learns
def test_another_guest_does_not_go_on_with_a_training(trained):
    before = contents(trained)
    refused = arkml("train", PENDULUM, "--frames", "50", "--out", trained, "--resume", "--json")

    assert refused.status == 2
    assert (
        "holds the training of c_reach.wasm, and this is c_pendulum.wasm" in refused.json["error"]
    )
    assert "Traceback" not in refused.err
    assert contents(trained) == before


def test_another_guest_under_the_same_name_does_not_go_on_with_a_training(trained, tmp_path):
    other = tmp_path / REACH.name
    shutil.copy(PENDULUM, other)
    kept = {path: data for path, data in contents(trained).items() if "hive" not in path.parts}
    rows = {path: path.read_bytes() for path in trained.glob("hive/runs/*/rows/*")}
    refused = arkml("train", other, "--frames", "50", "--out", trained, "--resume", "--json")

    assert refused.status == 2, refused.err
    assert "run 'reach' of 'reach' (4 features, 2 actions)" in refused.json["error"]
    assert "run 'pendulum' of 'pendulum' (3 features, 1 actions)" in refused.json["error"]
    assert {path: path.read_bytes() for path in kept} == kept
    assert {path: path.read_bytes() for path in trained.glob("hive/runs/*/rows/*")} == rows


@pytest.mark.parametrize("damage", [None, "nonsense"], ids=["whole", "damaged"])
def test_another_guest_does_not_go_on_where_only_the_hive_says_of_what(trained, tmp_path, damage):
    out = tmp_path / "out"
    shutil.copytree(trained, out)
    (out / "training.json").unlink()
    (document,) = out.glob("hive/runs/*/run.json")
    if damage is not None:
        document.write_text(damage)
    refused = arkml("train", PENDULUM, "--frames", "50", "--out", out, "--resume", "--json")
    told = {
        None: "run 'reach' of 'reach' (4 features, 2 actions) is to be resumed here",
        "nonsense": f"{document} does not say which training is to be resumed",
    }[damage]

    assert refused.status == 2, refused.err
    assert told in refused.json["error"]
    assert not list(out.glob("c_pendulum*"))


@pytest.mark.parametrize("name", ["training.json", "hive/runs/*/run.json"])
def test_a_pipe_that_should_say_what_was_trained_is_not_waited_for(trained, tmp_path, name):
    out = tmp_path / "out"
    shutil.copytree(trained, out)
    if "hive" in name:
        (out / "training.json").unlink()
    (path,) = out.glob(name)
    path.unlink()
    os.mkfifo(path)
    refused = arkml("train", REACH, "--frames", "50", "--out", out, "--resume", "--json")

    assert refused.status == 2, refused.err
    assert str(path) in refused.json["error"]


@pytest.mark.learns
def test_a_guest_that_was_renamed_goes_on_with_its_training(trained, tmp_path, config):
    out, renamed = tmp_path / "out", tmp_path / "points.wasm"
    shutil.copytree(trained, out)
    shutil.copy(REACH, renamed)
    before = json.loads((out / "training.json").read_text())
    resumed = arkml(
        "train", renamed, "--frames", "20", "--config", config, "--out", out, "--resume", "--json"
    )

    assert resumed.status == 0, resumed.err
    assert resumed.json["run"] == before["run"]
    assert json.loads((out / "training.json").read_text())["guest"] == "points.wasm"
    assert resumed.json["policy"]["onnx"] == str((out / before["guest"]).with_suffix(".onnx"))
    assert not list(out.glob("points*"))


def test_a_training_does_not_go_on_with_other_settings(trained, tmp_path, config):
    out, other = tmp_path / "out", tmp_path / "other.json"
    shutil.copytree(trained, out)
    other.write_text(json.dumps(QUICK | {"gamma": 0.5, "hidden": 16}))
    before = {path: path.read_bytes() for path in out.glob("hive/runs/*/run.json")}
    words = ("train", REACH, "--frames", "20", "--out", out, "--resume", "--json")
    refused = arkml(*words, "--config", other, "--seed", "9")
    limited = arkml(*words, "--config", config, "--max-episode-steps", "7")

    assert (refused.status, limited.status) == (2, 2)
    assert "hidden 16, it has 32; gamma 0.5, it has 0.95; seed 9, it has 0" in refused.json["error"]
    assert "--out DIR" in refused.json["error"]
    assert "max_episode_steps is 7, and the training in" in limited.json["error"]
    assert "began with None: leave it out" in limited.json["error"]
    assert {path: path.read_bytes() for path in before} == before


def test_an_algorithm_that_no_package_brings_is_refused_before_a_hive_starts(tmp_path):
    out = tmp_path / "out"
    refused = arkml("train", REACH, "--out", out, "--algorithm", "nosuch", "--json")

    assert refused.status == 2
    assert "algorithm is 'nosuch': this hive has auto, drawn, ppo" in refused.json["error"]
    assert not out.exists()


def test_a_training_that_was_aborted_before_its_first_row_is_no_obstacle(trained, tmp_path, config):
    out, checkpoint = tmp_path / "out", next(trained.rglob("*.safetensors"))
    words = ("train", REACH, "--frames", "50", "--out", out)
    aborted = arkml("train", PENDULUM, *words[2:], "--from", checkpoint, "--config", config)
    other = arkml("train", GUESTS / "c_servlet.wasm", "--out", out)
    kept = list(out.glob("hive/runs/*/run.json"))
    trained = arkml(*words, "--config", config, "--json")
    resumed = arkml(*words, "--resume", "--json")
    another = arkml(*words, "--config", config)

    assert aborted.status == 1
    assert "is aborted" in aborted.err
    assert (other.status, len(kept)) == (2, 1)  # what is refused removes nothing
    assert (trained.status, resumed.status) == (0, 0), trained.err + resumed.err
    assert not kept[0].exists()
    assert trained.json["name"] == "reach"
    assert trained.json["run"] == resumed.json["run"]
    assert another.status == 2
    assert "holds a training already" in another.err


def test_a_training_that_is_not_there_to_be_resumed_is_said_to_be_new(tmp_path, config):
    out = tmp_path / "nosuch"
    words = ("train", REACH, "--frames", "50", "--config", config, "--resume", "--out", out)
    first, second = arkml(*words), arkml(*words)

    said = f"{out} holds no training to resume: a new one begins there"
    assert (first.status, second.status) == (0, 0), first.err + second.err
    assert said in first.err
    assert said not in second.err


def test_a_training_whose_time_is_over_is_not_resumed(trained, tmp_path):
    """Its guest asked for a day, of which nothing is left: see `start_training`."""
    copy = tmp_path / "out"
    shutil.copytree(trained, copy)
    (path,) = copy.glob("hive/runs/*/run.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"lasted": 86_400.5}))
    before = path.read_bytes()
    refused = arkml("train", REACH, "--minutes", "5", "--out", copy, "--resume", "--json")

    assert refused.status == 2
    assert "it has lasted the 86,400 s that it was started for" in refused.json["error"]
    assert path.read_bytes() == before


@pytest.mark.parametrize("given", ["option", "file"])
def test_discrete_actions_are_not_trained_by_sac(tmp_path, given):
    out, file = tmp_path / "out", tmp_path / "settings.json"
    file.write_text('{"algorithm": "sac"}')
    options = {"option": ("--algorithm", "sac"), "file": ("--config", file)}[given]
    refused = arkml("train", CHOOSERS, "--frames", "50", "--out", out, *options)

    assert refused.status == 2
    assert 'algorithm is "sac": it takes continuous actions only' in refused.err
    assert 'the guest declares branches of 3, 2 choices; use "ppo"' in refused.err
    assert len(refused.err.splitlines()) == 1
    assert not out.exists()


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/arkml"])
def test_a_directory_that_cannot_be_written_is_named(tmp_path, place):
    (tmp_path / "file").write_text("no directory")
    out = tmp_path / place  # an absolute path stays what it is
    refused = arkml("train", REACH, "--frames", "10", "--out", out)

    assert refused.status == 2
    assert str(out) in refused.err
    assert "bug of the host" not in refused.err


@pytest.mark.parametrize(
    ("pointer", "size", "reason"),
    [
        (-4, 4, "4 bytes at 0xfffffffc end outside a memory of 65536 bytes"),
        (80, 6, "text is not UTF-8 at byte 4"),
        (128, 5_000, "the name of a run is"),
    ],
    ids=["pointer", "text", "length"],
)
def test_a_call_that_starts_no_training_for_its_arguments_is_told(tmp_path, pointer, size, reason):
    guest, out = tmp_path / "guest.wat", tmp_path / "out"
    guest.write_bytes(asking(pointer, size))
    trained = arkml("train", guest, "--minutes", "0.01", "--out", out)
    evaluated = arkml("evaluate", guest, "--policy", DET, "--frames", "5")
    told = f"{TRAIN} answered INVALID_ARGUMENTS: {reason}"

    assert f"error: guest.wat started no training: {told}" in trained.err
    assert f"error: guest.wat started no training within 5 frames: {told}" in evaluated.err


@pytest.mark.parametrize(
    ("export", "says"), [("ark_initialize", " started no training"), ("ark_applet_update", "")]
)
def test_a_misspelled_export_is_told_where_it_keeps_a_guest_from_training(tmp_path, export, says):
    guest, wrong = tmp_path / "guest.wat", export.replace("pp", "p").replace("ize", "ise")
    guest.write_bytes(asking(80, 4).replace(export.encode(), wrong.encode()))
    trained = arkml("train", guest, "--minutes", "0.01", "--out", tmp_path / "out")
    told = f"nothing calls the export {wrong}: did you mean {export}?"

    assert trained.status != 0
    assert f"error: guest.wat{says}: {told}" in trained.err


def _submit(actions, *pushes):
    """Push an observation of agent 1 for each state and number of features, and submit."""
    session = f"(i64.load {i32(HANDLE)})"
    lines = [
        f"(drop (call ${PUSH_TRAINING} {session} (i64.const 1) {i32(state)} (f32.const 0)"
        f" {i32(FEATURES)} {i32(features)} {i32(0)} {i32(0)} (f32.const 1)))"
        for state, features in pushes
    ]
    room = f"{i32(MODEL)} {i32(actions)} {i32(MODEL + 64)} {i32(actions)}"
    return " ".join([*lines, f"(drop (call ${SUBMIT_TRAINING} {session} {room}))"])


_ANSWERED = f"{PUSH_TRAINING} answered INVALID_ARGUMENTS"


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (
            _submit(1, (3, 3)),
            f"all 20 rows were refused: {_ANSWERED}: 3 features, the session has 2",
        ),
        (
            _submit(4, (3, 2)),
            f"all 20 submits were refused: {SUBMIT_TRAINING} answered",
        ),
        (
            _submit(1, (1, 2)),
            "all 20 rows were refused, each because of its agent: its episode has ended",
        ),
        (_submit(0), "the guest pushed none"),
    ],
    ids=["push", "submit", "agent", "none"],
)
def test_rows_that_a_longer_training_would_lack_too_are_told(tmp_path, config, frame, reason):
    guest = tmp_path / "guest.wat"
    guest.write_bytes(asking(80, 4, frame))
    out = tmp_path / "out"
    trained = arkml("train", guest, "--frames", "20", "--config", config, "--out", out)

    assert trained.status == 1
    assert f"there are no rows: {reason}" in trained.err
    assert "train for longer" not in trained.err


def test_a_setting_that_comes_twice_is_refused(tmp_path):
    (tmp_path / "twice.json").write_text('{"gamma": 0.9, "gamma": 0.8}')
    refused = arkml("train", REACH, "--config", "twice.json", cwd=tmp_path)

    assert refused.status == 2
    assert refused.err == "error: --config twice.json: the key 'gamma' comes twice in an object\n"


def test_a_hive_that_cannot_write_its_directory_ends_a_training_at_once(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "hive").write_text("no directory")
    refused = arkml("train", REACH, "--frames", "20", "--out", out, "--resume")

    assert refused.status == 2
    assert "error: the embedded hive does not start" in refused.err
    assert str(out / "hive") in refused.err
    assert "bug of the host" not in refused.err


def test_a_run_whose_hive_would_have_no_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("no directory")
    data = tmp_path / "file" / "below"
    refused = arkml("run", REACH, "--frames", "20", "--hive", "embedded", "--data", data)

    assert refused.status == 2
    assert refused.err == f"error: --data {data} cannot be made: Not a directory\n"


def test_a_hive_that_wants_another_token_ends_a_training_at_once(tmp_path):
    hive = start("hive", "serve", "--port", "0", "--data", tmp_path / "data", ARKML_HIVE_TOKEN="a")
    address = re.search(r"http://(\S+)", hive.stderr.readline())[1]
    refused = arkml(
        "train", REACH, "--hive", address, "--out", tmp_path / "out", ARKML_HIVE_TOKEN="b"
    )
    hive.send_signal(signal.SIGHUP)
    hive.communicate(timeout=300)

    assert refused.status == 2, refused.err
    assert "token" in refused.err
    assert hive.returncode == 0


@pytest.mark.parametrize("size", [0, 1 << 10], ids=["nothing", "a kibibyte"])
def test_a_disk_that_is_full_at_the_start_is_told_at_once(tmp_path, config, size):
    words = ["train", REACH, "--frames", "50", "--config", config, "--out", tmp_path / "out"]
    done = subprocess.run(
        [sys.executable, "-m", "arkml", *map(str, words)], capture_output=True, text=True,
        cwd=ROOT, env=ENVIRONMENT, timeout=300, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
    )  # fmt: skip

    assert done.returncode == 2, done.stderr
    assert "error: the embedded hive does not start: " in done.stderr
    assert "Traceback" not in done.stderr
    assert "bug of the host" not in done.stderr


@pytest.mark.slow
def test_a_disk_that_is_full_at_the_end_is_told_for_every_file(tmp_path, config):
    out = tmp_path / "out"
    with start("train", REACH, "--minutes", "5", "--config", config, "--out", out) as process:
        eventually(lambda: list(out.glob("hive/runs/*/policies/*3.onnx")))
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (16, 16))
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=300)

    assert process.returncode == 143
    for name in ("c_reach.onnx", "c_reach.last.onnx", "c_reach.crvo", "learning_curve.png"):
        assert f"error: {out / name} cannot be written: File too large" in err
    assert "bug of the host" not in err


def test_a_hive_whose_disk_fills_up_is_told(tmp_path, config):
    out = tmp_path / "out"
    with start("train", REACH, "--minutes", "5", "--config", config, "--out", out) as process:
        eventually(lambda: list(out.glob("hive/runs/*/policies/*3.onnx")))
        (hive,) = children_of(process.pid)
        resource.prlimit(hive, resource.RLIMIT_FSIZE, (1 << 12, 1 << 12))
        line = ""
        while "it takes nothing" not in line:
            line = process.stderr.readline()
            assert line, "it was not told"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)

    assert "the hive is gone: it takes nothing, the disk of the hive is full" in line
    assert process.returncode == 130
    assert (out / "c_reach.onnx").exists()


def test_a_learner_that_dies_is_told_with_its_reason(tmp_path, config):
    out = tmp_path / "out"
    with start("train", REACH, "--minutes", "5", "--config", config, "--out", out) as process:
        eventually(lambda: list(out.glob("hive/runs/*/policies/*3.onnx")))
        (hive,) = children_of(process.pid)
        (learner,) = children_of(hive)  # a training has one run: none is kept ready for another
        os.kill(learner, signal.SIGKILL)
        line = ""
        while "the learner" not in line:
            line = process.stderr.readline()
            assert line, "it was not told"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)

    assert line.startswith(
        "the learner ended, another one starts: the learner was killed (SIGKILL)"
    )
    assert process.returncode == 130


def test_a_learner_that_cannot_start_ends_a_training_with_its_reason(tmp_path):
    config, out = tmp_path / "wide.json", tmp_path / "out"
    config.write_text(json.dumps({"device": "cuda"}))
    failed = arkml(
        "train", REACH, "--minutes", "5", "--config", config, "--out", out, "--json",
        CUDA_VISIBLE_DEVICES="",
    )  # fmt: skip

    assert failed.status == 1, failed.err
    assert "is aborted: " in failed.json["error"]
    assert "cuda" in failed.json["error"].lower()


def test_an_interrupt_before_there_is_a_run_is_told_in_one_sentence(tmp_path):
    """It said that what was learned is kept, and then that there was no run."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        hive = f"127.0.0.1:{mute.getsockname()[1]}"
        words = ("train", REACH, "--minutes", "5", "--hive", hive, "--out", tmp_path / "out")
        with start(*words) as process, mute.accept()[0]:
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=300)

    assert process.returncode == 130
    assert " kept" not in err
    assert "keeping" not in err
    (error,) = re.findall("error: .*", err)
    assert error.startswith("error: nothing was learned: interrupted before c_reach.wasm had a run")


def test_a_tracker_that_cannot_be_used_is_refused_before_anything_is_made(tmp_path):
    out = tmp_path / "out"
    refused = arkml("train", REACH, "--track", "sheets", "--out", out)

    assert refused.status == 2
    assert "track is 'sheets': it takes wandb or mlflow" in refused.err
    assert not out.exists()
