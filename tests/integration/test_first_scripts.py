"""The first lines that users of other libraries write run with guests as they are."""

import gymnasium
import numpy as np
import pytest
import stable_baselines3.common.env_checker
from gymnasium.utils.env_checker import check_env
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from tests.integration.command_line import GUESTS

import arkml.envs.gym  # noqa: F401  registers the guests
from arkml.envs.pettingzoo_env import parallel_env

NAME = "arkml/Guest-v0"
ONE = {"configure": (1, "{seed}")}
PENDULUM = {"module": str(GUESTS / "c_pendulum.wasm"), **ONE}
CARTPOLE = {"module": str(GUESTS / "c_cartpole.wasm"), **ONE}

# Gymnasium warns about every infinite bound, as of features whose range is not declared.
unbounded = pytest.mark.filterwarnings("ignore:.*(Box observation space|is probably too)")


def test_stable_baselines3_makes_a_vector_of_guests_by_name():
    envs = make_vec_env(NAME, n_envs=3, seed=1, env_kwargs=PENDULUM)
    observations = envs.reset()
    stepped, rewards, dones, _ = envs.step(np.zeros((3, 1), np.float32))
    picture = envs.render()
    envs.close()

    assert observations.shape == stepped.shape == (3, 3)
    assert rewards.shape == dones.shape == (3,)
    assert picture.ndim == 3


@unbounded
@pytest.mark.parametrize("guest", [PENDULUM, CARTPOLE])
def test_the_checker_of_gymnasium_passes_with_rendering(guest):
    env = gymnasium.make(NAME, render_mode="rgb_array", **guest)
    check_env(env.unwrapped)
    env.close()


@unbounded
def test_the_checker_of_stable_baselines3_passes():
    env = gymnasium.make(NAME, render_mode="rgb_array", **PENDULUM)
    stable_baselines3.common.env_checker.check_env(env)
    env.close()


@pytest.mark.usefixtures("forgotten")
def test_agents_whose_episodes_end_at_different_times_stay_with_black_death(supersuit):
    game = supersuit.black_death_v3(parallel_env(CARTPOLE["module"], configure=(3, 1)))
    game.reset(seed=1)
    shown, ends = [], []
    while game.agents:
        actions = {name: np.full(1, number - 1, "f4") for number, name in enumerate(game.agents)}
        observations, _, over, *_ = game.step(actions)
        shown.append(len(observations))
        ends.append(set(over.values()))
    game.close()

    assert set(shown) == {3}
    assert ends[-1] == {True}
    assert not any(True in each for each in ends[:-1])


@pytest.mark.usefixtures("forgotten")
def test_the_tutorial_of_pettingzoo_with_stable_baselines3_runs(supersuit):
    game = parallel_env(CARTPOLE["module"], configure=(3, "{seed}"))
    agents = supersuit.pettingzoo_env_to_vec_env_v1(supersuit.black_death_v3(game))
    envs = supersuit.concat_vec_envs_v1(agents, 2, num_cpus=0, base_class="stable_baselines3")
    model = PPO("MlpPolicy", envs, n_steps=64, batch_size=64, n_epochs=1, device="cpu")
    model.learn(total_timesteps=2 * 64 * 6)
    envs.close()
    game.close()

    assert model.num_timesteps == 2 * 64 * 6
