"""The agents of a guest as a native environment of PufferLib, which writes into its buffers."""

import sys
from typing import Any

import numpy as np
import pufferlib
import pufferlib.vector
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from arkml.envs.step_arrays import StepArrays
from arkml.envs.vector_env import vector_env

MODULE = sys.argv[1] if len(sys.argv) > 1 else "fixtures/guests/c_cartpole.wasm"
AGENTS, STEPS = 64, 300


class GuestPufferEnv(pufferlib.PufferEnv):
    """
    Steps the agents of one guest, or with `per="guest"` guests of one agent each.

    An episode that ended is followed by the next one in the same step. With SAME_STEP, the default,
    agents of one guest have to be replaced in the submit that ends them. NEXT_STEP fits those that
    are replaced one submit later: an end is reported in that step, with reward 0.
    Masks are False for places without an agent. Infos are a list, with the mean return and length
    of the episodes that ended. Actions are clipped to their space.
    """

    def __init__(self, module: Any, *, buf: Any = None, seed: int = 0, **options: Any) -> None:
        options = {"autoreset_mode": "SameStep", "restart": "on-failure", **options}
        self._envs = envs = vector_env(module, **options)
        self._seed: int | None = seed
        self.single_observation_space = envs.single_observation_space
        self.single_action_space = envs.single_action_space
        self.num_agents = envs.num_envs
        super().__init__(buf)
        late = envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
        self._ends = np.zeros((2, self.num_agents), bool) if late else None
        self._returns, self._lengths = np.zeros((2, self.num_agents))

    def reset(self, seed: Any = None) -> tuple[Any, list[dict[str, float]]]:
        seed = seed[0] if isinstance(seed, list) else seed
        observations, info = self._envs.reset(seed=self._seed if seed is None else seed)
        self._seed = None
        self.observations[:] = observations
        self.masks[:] = info["present"]
        for array in (self.rewards, self.terminals, self.truncations):
            array[:] = 0
        for array in (self._ends, self._returns, self._lengths):
            if array is not None:
                array[:] = 0
        return self.observations, []

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, list[dict[str, float]]]:
        space = self.single_action_space
        if isinstance(space, spaces.Box):
            actions = np.clip(actions, space.low, space.high)
        ends = self.terminals, self.truncations
        if self._ends is not None:
            self.terminals[:], self.truncations[:] = self._ends
            ends = self._ends[0], self._ends[1]
        out = StepArrays(self.observations, self.rewards, *ends, self.masks)
        self._envs.step(actions, out=out)
        return self.observations, self.rewards, self.terminals, self.truncations, self._infos()

    def close(self) -> None:
        self._envs.close()

    def _infos(self) -> list[dict[str, float]]:
        self._returns += self.rewards
        self._lengths += self.masks
        over = (self.terminals | self.truncations).nonzero()[0]
        if not len(over):
            return []
        means = self._returns[over].mean(), self._lengths[over].mean()
        self._returns[over] = self._lengths[over] = 0
        return [{"episode_return": float(means[0]), "episode_length": float(means[1])}]


def main() -> None:
    options = {"module": MODULE, "autoreset_mode": "NextStep", "configure": (AGENTS, "{seed}")}
    envs = pufferlib.vector.make(GuestPufferEnv, env_kwargs=options)
    envs.async_reset(1)
    random, ended, length = np.random.default_rng(1), 0, 0.0
    for step in range(1, STEPS + 1):
        _, _, terminals, _, infos, _, _ = envs.recv()
        ended += int(terminals.sum())
        length = infos[0]["episode_length"] if infos else length
        envs.send(random.uniform(-1, 1, (AGENTS, 1)).astype("f4"))
        if step % 100 == 0:
            print(f"{step * AGENTS:6} agent steps, {ended:4} episodes, the last of {length:.1f}")
    envs.close()


if __name__ == "__main__":
    main()
