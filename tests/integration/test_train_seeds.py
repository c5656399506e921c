"""`arkml train --seeds N`: a process for each seed, one table, one curve."""

import json
import os
import re
import signal

import pytest
from tests.integration.command_line import GUESTS, arkml, start
from tests.waiting import eventually

pytestmark = pytest.mark.learns

REACH, PENDULUM = GUESTS / "c_reach.wasm", GUESTS / "c_pendulum.wasm"
TRAIN = ("train", REACH, "--minutes", "5", "--eval-every", "never")
QUICK = {"algorithm": "drawn", "hidden": 32, "batch_size": 64, "memory_min_size": 640}


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "quick.json"
    path.write_text(json.dumps(QUICK))
    return path


def test_each_seed_has_its_directory_and_all_of_them_a_curve(tmp_path, config):
    out = tmp_path / "out"
    words = (*TRAIN, "--config", config, "--out", out)
    with start(
        *words, "--seeds", "2", "--seed", "3", "--until-return", "-1e6", "--json"
    ) as process:
        text, err = process.communicate(timeout=300)
    document = json.loads(text)
    trained = [json.loads((out / f"seed-{seed}.json").read_text()) for seed in (3, 4)]

    assert process.returncode == 0, err
    assert [one["seed"] for one in document["seeds"]] == [3, 4]
    assert [one["end_reason"] for one in document["seeds"]] == ["return", "return"]
    assert [one["rows_to_goal"] for one in document["seeds"]] == [one["rows"] for one in trained]
    assert [one["best_return"] for one in document["seeds"]] == [
        one["policy"]["score"] for one in trained
    ]
    assert document["reached"] == 2
    assert document["goal"] == -1e6
    assert (out / "seed-3" / "c_reach.onnx").read_bytes() != (
        out / "seed-4" / "c_reach.onnx"
    ).read_bytes()
    assert (out / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert "seed 3: return after" in err
    assert "(2 of 2)" in err


@pytest.mark.slow
def test_an_interrupt_keeps_what_all_seeds_have_learned(tmp_path, config):
    out = tmp_path / "out"
    words = (*TRAIN, "--config", config, "--out", out, "--json")
    with start(*words, "--seeds", "3", "--jobs", "2") as process:
        for seed in (0, 1):
            eventually(lambda s=seed: list(out.glob(f"seed-{s}/hive/runs/*/policies/*3.onnx")))
        process.send_signal(signal.SIGINT)
        text, err = process.communicate(timeout=300)
    document = json.loads(text)

    assert process.returncode == 130, err
    assert "interrupted by SIGINT: keeping what was learned" in err
    assert [(one["seed"], one["end_reason"]) for one in document["seeds"]] == [
        (0, "interrupted"), (1, "interrupted"),
    ]  # fmt: skip
    assert all((out / f"seed-{seed}" / "c_reach.onnx").exists() for seed in (0, 1))
    assert not (out / "seed-2").exists()


def test_trainings_end_with_the_process_that_started_them(tmp_path, config):
    out = tmp_path / "out"
    words = (*TRAIN, "--config", config, "--out", out, "--json")
    with start(*words, "--seeds", "1") as process:
        eventually(lambda: list(out.glob("seed-0/hive/runs/*/policies/*1.onnx")))
        process.kill()
    ended = eventually(lambda: (out / "seed-0.json").stat().st_size)

    assert ended
    assert json.loads((out / "seed-0.json").read_text())["end_reason"] == "interrupted"


def test_what_is_refused_for_one_seed_is_not_tried_with_the_others(tmp_path):
    refused = arkml(
        "train", tmp_path / "gone.wasm", "--seeds", "4", "--jobs", "1", "--out", tmp_path / "out",
        "--json",
    )  # fmt: skip

    assert refused.status == 2
    assert [one["status"] for one in refused.json["seeds"]] == [2]
    assert "gone.wasm" in refused.json["seeds"][0]["error"]
    assert refused.json["curve"] is None


def test_a_seed_that_fails_after_it_began_says_why(tmp_path):
    refused = arkml(
        "train", REACH, "--frames", "3", "--seeds", "1", "--out", tmp_path / "out", "--json"
    )
    (one,) = refused.json["seeds"]

    assert refused.status == 1
    assert re.search(r"seed 0: frames after \d+ rows: nothing was learned: sac begins", refused.err)
    assert "nothing was learned: sac begins" in one["error"]


def test_jobs_without_seeds_are_refused(tmp_path):
    refused = arkml("train", REACH, "--jobs", "2", "--out", tmp_path / "out")

    assert refused.status == 2
    assert "--jobs is for --seeds" in refused.err
    assert not os.path.lexists(tmp_path / "out")
