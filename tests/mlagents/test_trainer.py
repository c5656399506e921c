"""The trainer of ML-Agents trains a guest through our low-level API, without its own."""

import json
import sysconfig
from pathlib import Path

import pytest
from tests.integration.command_line import GUESTS, ROOT

pytestmark = pytest.mark.mlagents
PROGRAM = Path(__file__).with_name("trainer.py")
SETTINGS = ROOT / "examples" / "environments" / "curriculum.yaml"


def test_a_trainer_of_ml_agents_learns_over_our_classes(originals, tmp_path):
    packages = sysconfig.get_paths()["purelib"]
    guest = GUESTS / "c_curriculum.wasm"
    printed = originals.run("python", PROGRAM, packages, guest, SETTINGS, tmp_path)
    found = json.loads(printed.splitlines()[-1])
    rewards = found["means"]["Environment/Cumulative Reward"]

    assert found["base"] == "arkml.envs.llapi.base_env"
    assert rewards[-1] > rewards[0]
    assert rewards[-1] > 0.7  # it comes to a goal at 9 of 50 steps
    assert found["means"]["Environment/Lesson Number/distance"][-1] == 1
