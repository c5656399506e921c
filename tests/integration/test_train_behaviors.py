"""A guest that trains two behaviors: the policies of both are kept, and both play."""

import json

import pytest
from tests.integration.command_line import arkml
from tests.integration.guest_text import (
    PUSH,
    PUSH_TRAINING,
    START,
    SUBMIT,
    SUBMIT_TRAINING,
    TAKE_TRAINING,
    TRAIN,
    data,
    function,
    i32,
    module,
)

import arkml as package
from arkml.cli.values import read_policies
from arkml.errors import UsageError

QUICK = {"algorithm": "drawn", "hidden": 32, "batch_size": 64, "memory_min_size": 128}
NAMES = ("left", "../right")
STEPS, FRAMES = 16, 400
BOSS = (
    "--policy", "2,1=training/duel/duel.onnx", "--policy", "boss=training/duel/duel.onnx",
    "--policy", "training/duel/duel.___right.onnx",
)  # fmt: skip
"""The policies of the guest, and one that is for none of its behaviors."""

_STEP, _EPISODE, _FUTURES, _HANDLES, _FEATURES, _ACTION = 0, 8, 16, 32, 64, 128
_TEXTS = {"localhost": 256, "game": 272, NAMES[0]: 280, NAMES[1]: 288}
_SPEC = json.dumps({
    "behaviors": {
        name: {"observations": [{"shape": [features]}], "actions": {"continuous": 1}}
        for features, name in enumerate(NAMES, 2)
    }
}).replace('"', '\\"')  # fmt: skip


def _text(text):
    return f"{i32(_TEXTS[text])} {i32(len(text))}"


def _started(number, name):
    """Start a training or, where there is none, an inference session."""
    place = i32(_HANDLES + 8 * number)
    return f"""(if (call ${TRAIN} {_text("localhost")} {i32(12356)} {_text("game")} {_text(name)}
        {i32(2 + number)} {i32(1)} {i32(_FUTURES + 8 * number)})
      (then (global.set $infers (i32.const 1))
        (drop (call ${START} {i32(2 + number)} {i32(1)} {i32(0)} {i32(0)} {i32(0)} {place}))))"""


def _taken(number):
    handle = i32(_HANDLES + 8 * number)
    return f"""(if (i64.eqz (i64.load {handle})) (then (br_if $wait
      (call ${TAKE_TRAINING} (i64.load {i32(_FUTURES + 8 * number)}) {handle}))))"""


def _acted(number):
    handle = f"(i64.load {i32(_HANDLES + 8 * number)})"
    row = f"{i32(_FEATURES)} {i32(2 + number)}"
    submitted = f"{handle} {i32(_ACTION)} {i32(1)} {i32(_ACTION + 8)} {i32(1)}"
    episode = f"(i64.load {i32(_EPISODE)}) (local.get $state) (f32.const 0.5)"
    return f"""(if (global.get $infers)
      (then (drop (call ${PUSH} {handle} {episode} {row} (f32.const 1)))
        (drop (call ${SUBMIT} {submitted})))
      (else (drop (call ${PUSH_TRAINING} {handle} {episode} {row} {i32(0)} {i32(0)} (f32.const 1)))
        (drop (call ${SUBMIT_TRAINING} {submitted}))))"""


GUEST = module(
    f'(@custom "arkml.spec" "{_SPEC}")',
    "(global $infers (mut i32) (i32.const 0))",
    *(data(at, text.encode()) for text, at in _TEXTS.items()),
    data(_FEATURES, bytes.fromhex("0000003f000080be0000803f")),
    function("ark_initialize", "".join(_started(*one) for one in enumerate(NAMES))),
    function(
        "ark_applet_update",
        f"""(local $step i32) (local $state i32)
        (block $wait
          (if (i32.eqz (global.get $infers)) (then {_taken(0)} {_taken(1)}))
          (local.set $step (i32.load {i32(_STEP)}))
          (if (i32.eqz (local.get $step)) (then (local.set $state (i32.const 3))
            (i64.store {i32(_EPISODE)} (i64.add (i64.load {i32(_EPISODE)}) (i64.const 1)))))
          (if (i32.eq (local.get $step) {i32(STEPS)}) (then (local.set $state (i32.const 2))))
          {_acted(0)} {_acted(1)}
          (i32.store {i32(_STEP)} (i32.rem_u (i32.add (local.get $step) {i32(1)})
            {i32(STEPS + 1)})))""",
    ),
    uses=(TRAIN, TAKE_TRAINING, PUSH_TRAINING, SUBMIT_TRAINING, START, PUSH, SUBMIT),
)


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
