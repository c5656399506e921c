"""A curriculum of `mlagents-learn` changes the episodes of a guest that heeds its parameters."""

import json

import pytest
from tests.integration.command_line import GUESTS, ROOT
from tests.integration.test_environment_examples import shown, without_numbers
from tests.integration.test_llapi_environment import can_bind, free_port

pytestmark = pytest.mark.mlagents
NEAR, FAR = 2.0, 9.0


def test_the_lessons_of_a_trainer_change_the_episodes_of_a_guest(originals, bundle, tmp_path):
    player = bundle(GUESTS / "c_curriculum.wasm")
    port = free_port()
    printed = originals.run(
        "mlagents-learn", ROOT / "examples" / "environments" / "curriculum.yaml", f"--env={player}",
        "--run-id=lessons", "--seed=1", f"--base-port={port}", "--no-graphics",
        "--torch-device=cpu", cwd=tmp_path,
    )  # fmt: skip
    logs = tmp_path / "results" / "lessons" / "run_logs"
    gauges = json.loads((logs / "timers.json").read_text())["gauges"]
    lessons = json.loads((logs / "training_status.json").read_text())["distance"]
    lines = [
        line.removeprefix("[INFO] ").strip()
        for line in printed.splitlines()
        if "in lesson" in line or "Mean Reward" in line
    ]

    assert can_bind(port)
    assert sorted(without_numbers(lines)) == sorted(without_numbers(shown("curriculum.yaml")))
    assert lessons["lesson_num"] == 1
    # The guest sends the distance of each episode that ended; these are means of summaries.
    assert gauges["walker.distance.mean"]["min"] == NEAR
    assert gauges["walker.distance.mean"]["max"] == FAR
