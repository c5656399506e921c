"""A library that knows nothing of guests learns the point mass from one."""

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv
from tests.integration.command_line import GUESTS

import arkml.envs.gym  # noqa: F401  registers the guests

POINT_MASS = GUESTS / "ark_api" / "applet_train_016.wasm"
BUDGET = 200_000  # steps of agents
ENOUGH = -15.0  # of an episode; nothing makes -37, chance -210, a controller made by hand -3
EPISODE = 50

pytestmark = pytest.mark.slow


class Seats(VecEnv):
    """The agents of a guest as stable-baselines3 has environments; what ends begins in the next."""

    def __init__(self, **options):
        self._envs = gymnasium.make_vec(
            "arkml/Guest-v0", vectorization_mode="vector_entry_point", **options
        )
        envs = self._envs
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self):
        observations, _ = self._envs.reset()
        return observations

    def step_async(self, actions):
        self._actions = actions

    def step_wait(self):
        observations, rewards, terminated, truncated, _ = self._envs.step(self._actions)
        infos = [{} for _ in range(self.num_envs)]
        for place in np.flatnonzero(truncated):
            infos[place] = {
                "terminal_observation": observations[place],
                "TimeLimit.truncated": True,
            }
        return observations, rewards, terminated | truncated, infos

    def close(self):
        self._envs.close()

    def get_attr(self, attr_name, indices=None):
        del indices
        return [getattr(self._envs, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name, value, indices=None):
        raise NotImplementedError

    def env_method(self, method_name, *method_args, indices=None, **method_kwargs):
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class, indices=None):
        del wrapper_class, indices
        return [False] * self.num_envs


def mean_return(policy, frames):
    """Of the episodes that are played from their first step to their last."""
    envs = Seats(module=POINT_MASS, configure=f"localhost 12356 {frames} judged")
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
    envs = Seats(module=POINT_MASS, configure="localhost 12356 1000000 learned")
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
