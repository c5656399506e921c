"""A short soak, which does what a long one does."""

import re
import subprocess
import sys
from pathlib import Path

from tests.soak.measuring import LEAST_ROUNDS
from tests.soak.subjects import LIGHT, WITH_HIVE, run

ROOT = Path(__file__).parents[2]


def test_a_soak_prints_a_line_for_each_round_and_what_has_grown():
    command = [sys.executable, "-m", "tests.soak.run", "--seconds=0", "--things=3", "--seed=4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    measured = [line for line in lines if re.match(r" +\d+ s ", line)]
    made = re.search(r"(\d+) things made, (\d+) failures", done.stdout)

    assert done.stderr == ""
    assert len(measured) == LEAST_ROUNDS
    assert all(len(line.split()) == 9 for line in measured)
    assert made is not None
    assert int(made[1]) >= LEAST_ROUNDS * 2
    assert lines[-1].startswith("not flat: " if done.returncode else "flat")


def test_runs_are_among_the_things():
    assert run in WITH_HIVE
    assert set(LIGHT) < set(WITH_HIVE)
