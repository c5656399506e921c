"""A guest that trains two behaviors: the policies of both are kept, and both play."""

import json

import pytest
from tests.integration.command_line import arkml
from tests.integration.duel_guest import duel

import arkml as package
from arkml.cli.values import read_policies
from arkml.errors import UsageError

QUICK = {"algorithm": "drawn", "hidden": 32, "batch_size": 64, "memory_min_size": 128}
NAMES = ("left", "../right")
FRAMES = 400
BOSS = (
    "--policy", "2,1=training/duel/duel.onnx", "--policy", "boss=training/duel/duel.onnx",
    "--policy", "training/duel/duel.___right.onnx",
)  # fmt: skip
"""The policies of the guest, and one that is for none of its behaviors."""

GUEST = duel(*NAMES)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A training of the guest, and its folder."""
    folder = tmp_path_factory.mktemp("duel")
    (folder / "duel.wat").write_bytes(GUEST)
    settings = folder / "settings.json"
    settings.write_text(json.dumps(QUICK))
    run = arkml("train", "duel.wat", "--frames", FRAMES, "--config", settings, "--json", cwd=folder)
    assert run.status == 0, run.err
    return run.json, folder


def test_the_policies_of_all_runs_are_kept_in_files(trained):
    document, folder = trained
    (other,) = document["other_policies"].values()

    assert document["name"] == NAMES[0]
    assert list(document["other_policies"]) == [NAMES[1]]
    assert other["onnx"] == "training/duel/duel.___right.onnx"
    assert {path.name for path in (folder / "training/duel").glob("*.onnx")} == {
        "duel.onnx", "duel.last.onnx", "duel.___right.onnx",
    }  # fmt: skip


def test_frames_count_once_all_runs_that_were_asked_for_have_begun(trained):
    document, _ = trained

    assert document["frames"] == FRAMES
    assert FRAMES - 1 <= document["rows"] <= FRAMES + 5  # a frame or two see the last run begin


def test_a_training_of_several_runs_is_resumed(trained):
    document, folder = trained
    words = ("--frames", FRAMES, "--config", folder / "settings.json", "--resume", "--json")
    run = arkml("train", "duel.wat", *words, cwd=folder)

    assert run.status == 0, run.err
    assert (run.json["run"], run.json["name"]) == (document["run"], NAMES[0])
    assert run.json["rows"] >= 2 * FRAMES - 1
    assert list(run.json["other_policies"]) == [NAMES[1]]


def test_a_smoke_test_waits_for_all_runs_and_names_policies_that_never_act(trained):
    _, folder = trained
    learns = arkml("smoke", "duel.wat", "--hive", "embedded", "--json", cwd=folder)
    (checks,) = (one["checks"] for one in learns.json["guests"])
    detail = {one["name"]: one["detail"] for one in checks}["training"]
    idle = arkml("smoke", "duel.wat", *BOSS, cwd=folder)

    assert learns.status == 0, learns.out
    rows = int(detail.split(" rows")[0].split()[-1])
    assert 240 <= rows <= 244  # 120 frames of two agents, and one or two in which they begin
    assert idle.status == 1
    told = " ".join(idle.out.split())
    assert "the policy of boss never acted: no session of this name opened with it" in told


def test_the_command_to_play_lets_each_behavior_act_by_its_policy(trained):
    document, folder = trained
    words = document["play"].split()
    run = arkml(*words[1:], "--frames", 100, "--json", cwd=folder)

    assert words[1] == "run"
    assert run.status == 0, run.err
    assert run.json["rows"] == 200
    assert set(run.json["errors"]) == {"UNAVAILABLE"}  # of the trainings that there are not


def test_policies_act_by_the_shapes_of_sessions(trained):
    _, folder = trained
    policies = ("--policy", "2,1=training/duel/duel.onnx",
                "--policy", "training/duel/duel.___right.onnx")  # fmt: skip
    run = arkml("run", "duel.wat", "--frames", 10, *policies, "--json", cwd=folder)

    assert (run.status, run.json["rows"]) == (0, 20), run.err


def test_a_policy_whose_name_no_session_has_is_an_error_at_the_end(trained):
    _, folder = trained
    run = arkml("run", "duel.wat", "--frames", 10, *BOSS, cwd=folder)

    assert run.status == 1
    assert "the policy of boss never acted: no session of this name opened with it" in run.err


@pytest.mark.parametrize("command", ["evaluate", "record", "publish"])
def test_a_command_that_plays_one_behavior_says_so(trained, command):
    _, folder = trained
    words = ("duel.wat", "--policy", "left=training/duel/duel.onnx")
    run = arkml(command, *words, *(() if command == "evaluate" else ("-o", "out")), cwd=folder)

    assert run.status == 2
    assert "here it is FILE, for the agents of --behavior left" in run.err


def test_two_policies_of_one_name_are_refused(trained):
    _, folder = trained
    file = "training/duel/duel.onnx"
    run = arkml("run", "duel.wat", "--policy", f"a={file}", "--policy", f"a={file}", cwd=folder)

    assert run.status == 2
    assert f"--policy has {file} and {file} for 'a'" in run.err


def test_a_program_gets_the_policies_of_all_runs(tmp_path):
    result = package.train(GUEST, frames=FRAMES, settings=QUICK, directory=tmp_path / "out")
    other = result.other_policies[NAMES[1]]

    assert set(result.other_policies) == {NAMES[1]}
    assert other.path is not None
    assert other.path.read_bytes() == other.onnx == (result.files[f"run {NAMES[1]}"]).read_bytes()
    with package.Host(policies={NAMES[0]: result.best.onnx, NAMES[1]: other.onnx}) as host:
        guest = host.load(GUEST)
        guest.update()
        assert guest.statistics.rows == 2


def test_names_are_read_up_to_the_first_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rate=0.1").mkdir()
    for name in ("rate=0.1/a.onnx", "b.onnx"):
        (tmp_path / name).touch()

    read = {str(key): str(path) for key, path in read_policies(
        ["rate=0.1/a.onnx", "Walker?team=1=b.onnx", "left=rate=0.1/a.onnx", "2,1=b.onnx"]
    ).items()}  # fmt: skip
    assert read == {
        "None": "rate=0.1/a.onnx",
        "Walker?team=1": "b.onnx",
        "left": "rate=0.1/a.onnx",
        "(2, 1)": "b.onnx",
    }
    with pytest.raises(UsageError, match=r"all sessions.*goblin=goblin\.onnx"):
        read_policies(["b.onnx", "rate=0.1/a.onnx"])
    for text in ("left=", "=b.onnx"):
        with pytest.raises(UsageError, match=f"--policy {text}: it takes FILE, or NAME=FILE"):
            read_policies([text])
