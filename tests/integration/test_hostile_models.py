"""The host outlives every file of fixtures/hostile, each in a process of its own."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from arkml.limits import Limits
from arkml.policies.vetting import vet

ROOT = Path(__file__).parents[2]
MOST_SECONDS, MOST_GROWTH = 20.0, 512 << 20


@pytest.fixture(scope="module")
def verdicts():
    environment = os.environ | {"PYTHONPATH": str(ROOT / "host")}
    run = subprocess.run(
        [sys.executable, ROOT / "fixtures" / "hostile" / "judge.py"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_there_are_many_hostile_files_and_each_has_its_own_name(verdicts):
    names = [verdict["name"] for verdict in verdicts]

    assert len(set(names)) == len(names)
    assert len(names) > 400


def test_no_file_ends_or_hangs_the_process(verdicts):
    allowed = ("refused: ", "failed: ", "ran")

    assert [v for v in verdicts if not v["outcome"].startswith(allowed)] == []
    assert [v for v in verdicts if v["seconds"] > MOST_SECONDS] == []


def test_no_file_takes_much_memory(verdicts):
    assert [v for v in verdicts if v["growth"] > MOST_GROWTH] == []


def test_what_must_not_reach_a_runtime_is_stopped_at_the_gate(verdicts):
    must = [verdict for verdict in verdicts if verdict["must"] == "refused"]

    assert len(must) > 300
    assert [v for v in must if not v["outcome"].startswith("refused: ")] == []


def test_harmless_oddities_still_run(verdicts):
    outcomes = {verdict["name"]: verdict["outcome"] for verdict in verdicts}

    for name in ("weights that are no numbers", "division by zero", "1,999 transposes"):
        assert outcomes[name] == "ran", name


def test_vetting_takes_milliseconds():
    model = (ROOT / "fixtures" / "policies" / "mlp_f64_a3.onnx").read_bytes()
    times = []
    for _ in range(10):
        start = time.perf_counter()
        vet(model, Limits())
        times.append(time.perf_counter() - start)

    assert len(model) > 34_000
    assert min(times) < 0.01
