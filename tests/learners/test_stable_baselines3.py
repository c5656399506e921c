"""A library that knows nothing of guests learns from their agents, and from a fleet."""

import numpy as np
import pytest
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecMonitor
from tests.integration.command_line import GUESTS

from arkml.envs.sb3 import GuestSb3VecEnv

CARTPOLE = GUESTS / "c_cartpole.wasm"
CORRIDOR = GUESTS / "c_corridor.wasm"
POINT_MASS = GUESTS / "ark_api" / "applet_train_016.wasm"
BUDGET = 200_000  # steps of agents
ENOUGH = -15.0  # of an episode; nothing makes -37, chance -210, a controller made by hand -3
EPISODE = 50

pytestmark = pytest.mark.slow


def seats(configure):
    """The agents of the guest, which replaces those that end in its next submit."""
    return GuestSb3VecEnv(POINT_MASS, per="agent", autoreset_mode="NextStep", configure=configure)


def mean_return(policy, frames):
    """Of the episodes that are played from their first step to their last."""
    envs = seats(f"localhost 12356 {frames} judged")
    seen = envs.reset()
    totals, lengths, returns = np.zeros(envs.num_envs), np.zeros(envs.num_envs, int), []
    for _ in range(frames - 1):
        seen, rewards, over, _ = envs.step(policy(seen))
        totals += rewards
        lengths += 1
        returns += totals[over & (lengths >= EPISODE)].tolist()
        totals[over], lengths[over] = 0, -1  # the step that begins the next episode
    envs.close()
    return np.mean(returns)


def test_the_measure_is_that_of_the_guest():
    nothing = mean_return(lambda seen: np.zeros((len(seen), 1), "f4"), 1_000)
    by_hand = mean_return(lambda seen: np.clip(-seen[:, :1] - 1.5 * seen[:, 1:], -1, 1), 1_000)

    assert nothing == pytest.approx(-37, abs=4)
    assert by_hand > -6


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ppo_learns_the_point_mass(seed, record_property):
    torch.set_num_threads(1)
    envs = seats("localhost 12356 1000000 learned")
    model = PPO(
        "MlpPolicy", envs, seed=seed, device="cpu", n_steps=128, batch_size=256, gamma=0.97,
        learning_rate=1e-3, policy_kwargs={"net_arch": [32, 32], "log_std_init": -0.5},
    )  # fmt: skip
    model.learn(BUDGET)
    envs.close()
    found = mean_return(lambda seen: model.predict(seen, deterministic=True)[0], 1_000)
    record_property("mean_return", float(found))
    print(f"seed {seed}: mean return {found:.2f}")

    assert model.num_timesteps < BUDGET + 2_048
    assert found >= ENOUGH


def test_ppo_learns_to_keep_a_pole_upright_from_a_fleet():
    torch.set_num_threads(1)
    guests = GuestSb3VecEnv(CARTPOLE, num_envs=16, configure=(1, "{seed}"))
    model = PPO(
        "MlpPolicy", VecMonitor(guests), seed=1, device="cpu", n_steps=64, batch_size=256,
        gamma=0.98, learning_rate=2e-3, n_epochs=8,
    )  # fmt: skip
    model.learn(40_000)
    guests.close()
    lately = np.mean([episode["r"] for episode in model.ep_info_buffer])
    print(f"mean return of the last 100 episodes {lately:.0f}")

    assert lately > 200  # chance keeps it for 22 steps


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_maskable_ppo_learns_a_corridor_with_doors(seed):
    torch.set_num_threads(1)
    guests = VecMonitor(GuestSb3VecEnv(CORRIDOR, num_envs=16, configure=(1, "{seed}")))
    model = MaskablePPO(
        "MultiInputPolicy", guests, seed=seed, device="cpu", n_steps=32, batch_size=64, n_epochs=8,
        gamma=0.95, learning_rate=1e-3, ent_coef=0.02,
    )  # fmt: skip
    model.learn(10_000)
    returns = [episode["r"] for episode in model.ep_info_buffer]
    guests.close()

    assert len(returns) == 100
    assert np.mean(returns) >= 2.5  # -6 for one that stands still, 3.2 at the best
