"""A part of each fuzz target, the same inputs each time; `make fuzz` has the rest."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fuzz import run
from tests.fuzz.targets import TARGETS, explore

ROOT = Path(__file__).parents[2]
CRASHING = "runs"
"""The target that ends the process if it finds the worst, and so has one of its own."""


@pytest.fixture(autouse=True)
def silent():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", sorted(TARGETS.keys() - {CRASHING}))
def test_a_part_of_a_target_finds_nothing(name):
    target = TARGETS[name]
    with target.opened() as check:
        explore(target, check, target.examples, 7)


def test_a_part_of_the_runs_of_models_finds_nothing(tmp_path):
    command = [
        sys.executable, "-m", "tests.fuzz.process", CRASHING, "--seed=8",
        f"--examples={TARGETS[CRASHING].examples}", f"--input={tmp_path / 'input'}",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) >= TARGETS[CRASHING].examples


def test_what_a_check_raises_comes_with_the_smallest_input():
    found = []

    def check(data):
        if len(data) > 8:
            found.append(data)
            raise AssertionError("more than a header")

    with pytest.raises(AssertionError, match="more than a header"):
        explore(TARGETS["modules"], check, 50, 7)
    assert min(map(len, found)) < 60


def test_every_target_is_run_by_make_fuzz():
    assert set(run.TARGETS) == TARGETS.keys()
    assert {run.BYTE_TARGETS[name] for name in run.BYTE_TARGETS} == {
        target.folder for target in TARGETS.values() if target.folder
    }


@pytest.mark.parametrize(
    ("script", "status", "row"),
    [
        ("import os; os.abort()", -6, "FOUND (status -6)"),
        ("raise SystemExit(3)", 3, "FOUND (status 3)"),
        ("print(1234)", 0, "1,234 inputs   nothing found"),
        ("print('stat::number_of_executed_units: 77')", 0, "77 inputs   nothing found"),
    ],
)
def test_a_target_that_ends_its_process_is_a_finding_with_its_status(script, status, row):
    outcome = run.run([sys.executable, "-c", script], 30.0)

    assert outcome.status == status
    assert outcome.line("models").endswith(row)


def test_a_target_that_does_not_exist_is_named():
    command = [sys.executable, "-m", "tests.fuzz.run", "nothing"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "nothing: the targets are modules, models" in done.stderr
