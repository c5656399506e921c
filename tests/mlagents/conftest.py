"""The originals, in the environment that `make test-mlagents` made for them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.command_line import ENVIRONMENT, ROOT
from tools.houses import PYTHONPATH

from arkml.envs.llapi.player_bundle import write_bundle

HERE = Path(__file__).parent
SECONDS = 1200


class Originals:
    """Runs programs with the original `mlagents_envs` and `mlagents`."""

    def __init__(self, programs):
        self.programs = programs

    def run(self, program, *words, cwd=ROOT):
        """What it prints. One thread: the machine may have others to serve."""
        run = subprocess.run(
            [self.programs / program, *map(str, words)], capture_output=True, text=True, cwd=cwd,
            timeout=SECONDS, check=False, env={**ENVIRONMENT, "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore", "PYTHONPATH": PYTHONPATH},
        )  # fmt: skip
        assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
        return run.stdout


@pytest.fixture(scope="session")
def originals():
    found = os.environ.get("ARKML_ORIGINALS")
    if found is None:
        pytest.fail("ARKML_ORIGINALS names no folder of programs: run `make test-mlagents`")
    return Originals(Path(found))


@pytest.fixture(scope="session")
def ours():
    """Runs programs as the tests themselves run."""
    return Originals(Path(sys.executable).parent)


@pytest.fixture
def bundle(tmp_path):
    """Writes players, each in a folder of its own."""

    def write(guest, *words):
        return write_bundle(tmp_path / guest.stem, guest, words)

    return write
