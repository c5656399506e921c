"""`arkml sweep`: trials in processes, the best settings, and a sweep that is continued."""

import json
import signal

import pytest
from tests.integration.command_line import GUESTS, arkml, start
from tests.waiting import eventually

pytestmark = pytest.mark.learns

REACH, CHOOSERS = GUESTS / "c_reach.wasm", GUESTS / "c_choosers.wasm"
SPACE = {"updates_per_row": [0.05, 0.1], "hidden": {"low": 16, "high": 32, "int": True}}
QUICK = {"algorithm": "drawn", "batch_size": 64, "memory_min_size": 640}


@pytest.fixture
def words(tmp_path):
    """The words of a sweep into `out`, with trainings that last until there is a return."""
    (tmp_path / "space.json").write_text(json.dumps(SPACE))
    (tmp_path / "quick.json").write_text(json.dumps(QUICK))
    return (
        "sweep", REACH, "--space", tmp_path / "space.json", "--config", tmp_path / "quick.json",
        "-o", tmp_path / "out",
    )  # fmt: skip


def ended(process):
    """The exit code of a process, what it printed as JSON, and its log."""
    text, err = process.communicate(timeout=300)
    return process.returncode, json.loads(text), err


def test_a_sweep_finds_settings_that_a_training_takes(tmp_path, words):
    words = (*words, "--frames", "400", "--eval-every", "100", "--trials", "2", "--json")
    with start(*words, "--jobs", "1") as process:
        status, document, err = ended(process)
    with start(*words) as process:
        again = ended(process)
    settings = json.loads((tmp_path / "out/best.json").read_text())
    trained = arkml(
        "train", REACH, "--config", tmp_path / "out/best.json", "--frames", "40",
        "--out", tmp_path / "trained", "--json",
    )  # fmt: skip
    # On a busy machine a trial may have rated no policy but the first, and has no return then.
    means = [one["mean_return"] for one in document["trials"] if one["mean_return"] is not None]

    assert status == 0, err
    assert [one["trial"] for one in document["trials"]] == [0, 1]
    assert document["best"]["mean_return"] == max(means)
    assert settings == QUICK | document["best"]["settings"]
    assert (tmp_path / "out/sweep.png").read_bytes().startswith(b"\x89PNG")
    assert "(2 of 2)" in err
    assert again[1]["trials"] == document["trials"]
    assert trained.status == 0, trained.err


def test_an_interrupted_sweep_ends_its_trainings_and_repeats_their_trials(tmp_path, words):
    out = tmp_path / "out"
    with start(*words, "--minutes", "5", "--trials", "1", "--json") as process:
        eventually(lambda: list(out.glob("trial-0000/hive/runs/*/policies/*2.onnx")))
        process.send_signal(signal.SIGINT)
        status, document, err = ended(process)
    kept = json.loads((out / "trial-0000.json").read_text())
    with start(*words, "--minutes", "0.05", "--trials", "1", "--json") as process:
        eventually(lambda: (out / "trial-0001.settings.json").exists())
        process.send_signal(signal.SIGTERM)
        ended(process)
    first, second = (
        json.loads((out / f"trial-{number:04}.settings.json").read_text()) for number in (0, 1)
    )

    assert status == 130, err
    assert "interrupted by SIGINT: the same command continues" in err
    assert document["trials"] == []
    assert kept["end_reason"] == "interrupted"
    assert first == second


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tua": [0.1]}, "there is no setting 'tua'"),
        ({"tau": {"low": 0.1, "high": 20}}, "tau"),
    ],
)
def test_a_space_that_no_learner_takes_is_refused(tmp_path, words, change, message):
    (tmp_path / "space.json").write_text(json.dumps(change))
    refused = arkml(*words, "--frames", "10", "--json")

    assert refused.status == 2
    assert message in refused.json["error"]
    assert not (tmp_path / "out").exists()


def test_a_sweep_whose_first_training_is_refused_ends_with_the_reason(tmp_path, words):
    other = (words[0], CHOOSERS, *words[2:], "--trials", "3", "--jobs", "1", "--json")
    (tmp_path / "quick.json").write_text(json.dumps({"algorithm": "sac"}))
    refused = arkml(*other)

    assert refused.status == 2, refused.err
    assert 'algorithm is "sac"' in refused.json["error"]
    assert len(refused.json["trials"]) == 1
