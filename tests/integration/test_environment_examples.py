"""The programs of examples/environments print what their README says."""

import re
import subprocess
import sys

import pytest
from PIL import Image
from tests.integration.command_line import ENVIRONMENT, GUESTS, ROOT

FOLDER = ROOT / "examples" / "environments"
NUMBER = re.compile(r" *-?\d+(\.\d+)?")


def printed(name, folder, *words, **more):
    """
    The lines that a program prints.

    Its working directory is `folder`, `more` are variables of its environment.
    """
    run = subprocess.run(
        [sys.executable, FOLDER / f"{name}.py", *words], capture_output=True, text=True,
        cwd=folder, timeout=300, check=False, env={**ENVIRONMENT, "OMP_NUM_THREADS": "1", **more},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout.splitlines()


def shown(name):
    """The lines under the name of a file in the README."""
    section = (FOLDER / "README.md").read_text().split(f"## {name}\n")[1].split("\n## ")[0]
    return re.search(r"```text\n(.*?)\n```", section, re.DOTALL)[1].splitlines()


def without_numbers(lines):
    """They depend on the version of torch and on the machine."""
    return [NUMBER.sub(" N", line) for line in lines]


@pytest.mark.learns
@pytest.mark.parametrize("name", ["sb3_ppo", "cleanrl_ppo"])
def test_ppo_learns_from_a_fleet(name, tmp_path):
    lines = printed(name, tmp_path, GUESTS / "c_cartpole.wasm")
    means = [float(line.split()[-1]) for line in lines]

    assert without_numbers(lines) == without_numbers(shown(f"{name}.py"))
    assert means[-1] > 2 * means[0]


def test_agents_of_two_behaviors_choose_what_is_allowed(tmp_path):
    lines = printed("two_behaviors", tmp_path, GUESTS / "c_choosers.wasm")

    assert without_numbers(lines) == without_numbers(shown("two_behaviors.py"))


def test_a_video_is_recorded(tmp_path):
    lines = printed("record_video", tmp_path, GUESTS / "c_pendulum.wasm", tmp_path / "pendulum.gif")
    with Image.open(tmp_path / "pendulum.gif") as video:
        pictures, size = video.n_frames, video.size

    assert lines == shown("record_video.py")
    assert size == (256, 256)
    assert pictures > 50  # equal ones are stored once


@pytest.mark.learns
def test_a_policy_of_stable_baselines3_plays_in_the_guest_as_its_trainer_plays_it(tmp_path):
    words = GUESTS / "c_pendulum.wasm", tmp_path / "policy.onnx"
    # torch warns of the exporter that needs no further package
    lines = printed("sb3_to_guest", tmp_path, *words, PYTHONWARNINGS="default")
    difference, (trainer, its_error), (guest, error) = (
        [float(number) for number in re.findall(r"-?\d+\.\d+", line)] for line in lines
    )

    assert without_numbers(lines) == without_numbers(shown("sb3_to_guest.py"))
    assert difference == [0.0]
    assert abs(trainer - guest) < 6 * (its_error + error)
