"""PufferLib's contract with native environments, in short: `PufferEnv` and `vector.make` of 3.0."""

from types import SimpleNamespace

import numpy as np
from gymnasium import spaces

BUFFERS = ("observations", "rewards", "terminals", "truncations", "masks", "actions")


class APIUsageError(RuntimeError):
    """The error of its own that PufferLib raises."""


def joint_space(space, count):
    """The space of all agents."""
    if isinstance(space, spaces.Discrete):
        return spaces.MultiDiscrete([space.n] * count)
    if isinstance(space, spaces.MultiDiscrete):
        high = np.repeat(space.nvec[None] - 1, count, axis=0)
        return spaces.Box(0, high, (count, len(space.nvec)), space.dtype)
    low, high = (np.repeat(bound[None], count, axis=0) for bound in (space.low, space.high))
    return spaces.Box(low, high, (count, *space.shape), space.dtype)


def new_buffers(env):
    """Buffers for the agents of an environment, which the trainer owns."""
    count, seen, taken = env.num_agents, env.single_observation_space, env.single_action_space
    return {
        "observations": np.zeros((count, *seen.shape), seen.dtype),
        "rewards": np.zeros(count, np.float32),
        "terminals": np.zeros(count, bool),
        "truncations": np.zeros(count, bool),
        "masks": np.ones(count, bool),
        "actions": np.zeros(
            joint_space(taken, count).shape,
            taken.dtype if isinstance(taken, spaces.Box) else np.int32,
        ),
    }


class PufferEnv:
    """
    The base of native environments.

    They set the attributes that are required before, write into the buffers in `reset` and `step`,
    begin the next episode in the step that ends one, and return infos as a list.
    """

    emulated = False
    done = False

    def __init__(self, buf=None):
        for name in ("single_observation_space", "single_action_space", "num_agents"):
            if not hasattr(self, name):
                raise APIUsageError(f"Environment missing required attribute {name}")
        if hasattr(self, "observation_space") or hasattr(self, "action_space"):
            raise APIUsageError("PufferEnvs must define single spaces")
        if not isinstance(self.single_observation_space, spaces.Box):
            raise APIUsageError("Native observation_space must be a Box")
        if not isinstance(
            self.single_action_space, spaces.Discrete | spaces.MultiDiscrete | spaces.Box
        ):
            raise APIUsageError("Native action_space must be a Discrete, MultiDiscrete, or Box")
        for name, buffer in (buf or new_buffers(self)).items():
            setattr(self, name, buffer)
        self.observation_space = joint_space(self.single_observation_space, self.num_agents)
        self.action_space = joint_space(self.single_action_space, self.num_agents)
        self.agent_ids = np.arange(self.num_agents)

    @property
    def driver_env(self):
        return self

    def async_reset(self, seed=None):
        _, self.infos = self.reset(seed)
        assert isinstance(self.infos, list)

    def send(self, actions):
        _, _, _, _, self.infos = self.step(actions)
        assert isinstance(self.infos, list)

    def recv(self):
        return (
            self.observations, self.rewards, self.terminals, self.truncations, self.infos,
            self.agent_ids, self.masks,
        )  # fmt: skip


def serial(creator, count, seed=0, **kwargs):
    """Environments that share buffers, each with a part, and the buffers: `Serial`."""
    driver = creator(**kwargs)
    agents = driver.num_agents
    whole = new_buffers(
        SimpleNamespace(
            num_agents=count * agents,
            single_observation_space=driver.single_observation_space,
            single_action_space=driver.single_action_space,
        )
    )
    driver.close()
    parts = [slice(number * agents, (number + 1) * agents) for number in range(count)]
    envs = [
        creator(buf={name: whole[name][part] for name in BUFFERS}, seed=seed + number, **kwargs)
        for number, part in enumerate(parts)
    ]
    return envs, whole


def make(creator, env_args=(), env_kwargs=None):
    """One environment whose agents are all: the backend `PufferEnv` of `vector.make`."""
    env = creator(*env_args, **(env_kwargs or {}))
    if not isinstance(env, PufferEnv):
        raise APIUsageError("Native vectorization requires a native PufferEnv")
    return env
