"""`mlagents-learn` trains a guest that knows nothing of it, and the policy acts in our host."""

import re
from pathlib import Path

import numpy as np
import pytest
from tests.integration.command_line import GUESTS
from tests.integration.test_llapi_environment import can_bind, free_port
from tests.unit import policy_models

from arkml import GuestEnv
from arkml.limits import Limits
from arkml.policies.policy_files import read_policy_file

pytestmark = pytest.mark.mlagents
APPLET = GUESTS / "ark_api" / "applet_train_016.wasm"
FOR_EVER = "localhost 12356 4000000000"
NAME = "pointmass-applet"
SUMMARY = re.compile(r"Step: (\d+)\..* Mean Reward: (-?[\d.]+)\.")
ZEROS, GOOD = -37, -15
AGENTS, STEPS, LAST = 16, 160_000, 40_000


@pytest.fixture(scope="module")
def trained(originals, tmp_path_factory):
    """The mean returns by step that `mlagents-learn` told of, and its folder."""
    from arkml.envs.llapi.player_bundle import write_bundle

    folder = tmp_path_factory.mktemp("learning")
    player = write_bundle(folder / "player", APPLET, [f"--configure={FOR_EVER}"])
    port = free_port()
    told = originals.run(
        "mlagents-learn", Path(__file__).with_name("point_mass.yaml"), f"--env={player}",
        "--run-id=point", "--seed=1", f"--base-port={port}", "--no-graphics",
        "--torch-device=cpu", cwd=folder,
    )  # fmt: skip
    assert can_bind(port)
    means = {int(step): float(mean) for step, mean in SUMMARY.findall(told)}
    return means, folder / "results" / "point"


def returns_of(policy):
    """Those of the episodes that end in the frames of the last summary: they begin alike."""
    returns, ended = {}, []
    with GuestEnv(APPLET, configure=FOR_EVER) as env:
        step = env.reset()
        for frame in range(STEPS // AGENTS):
            decision = step.decisions[0]
            columns = (decision.agents.tolist(), decision.rewards.tolist(), decision.ended.tolist())
            for agent, reward, over in zip(*columns, strict=True):
                returns[agent] = returns.get(agent, 0.0) + reward
                if over:
                    ended.append((frame, returns.pop(agent)))
            step = env.step(policy(decision.observations[~decision.ended]))
    return [total for frame, total in ended if frame >= (STEPS - LAST) // AGENTS]


def test_a_trainer_brings_the_point_mass_home(trained):
    means, _ = trained

    assert max(means) == STEPS
    assert min(means.values()) < GOOD
    assert means[STEPS] >= GOOD


def test_what_was_trained_acts_in_our_host_as_it_did_for_the_trainer(trained):
    means, folder = trained
    (exported,) = (folder / NAME).glob("*.onnx")
    policy = policy_models.load(read_policy_file(exported, Limits()), 2, 1)
    ours = returns_of(lambda seen: policy_models.acted(policy, seen))
    nothing = returns_of(lambda seen: np.zeros((len(seen), 1), np.float32))

    assert np.mean(nothing) == pytest.approx(ZEROS, rel=0.1)
    assert len(ours) > 500
    assert np.mean(ours) == pytest.approx(means[STEPS], rel=0.1)
