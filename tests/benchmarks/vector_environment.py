"""Environments of stable-baselines3: the part that is the same for all of the benchmarks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv

Numbers = npt.NDArray[Any]


class PlainVecEnv(VecEnv):
    """A vector environment without attributes, methods and wrappers of single environments."""

    def __init__(self, count: int, observed: spaces.Box, taken: spaces.Space[Any]) -> None:
        self.actions: Numbers = np.zeros(0)
        super().__init__(count, observed, taken)

    def step_async(self, actions: Numbers) -> None:
        self.actions = actions

    def infos(self, final: Numbers, terminated: Numbers, ended: Numbers) -> list[dict[str, Any]]:
        """Return the infos of a step. final: float32, [n, F], of which those that ended count."""
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for number in np.flatnonzero(ended):
            infos[number]["terminal_observation"] = final[number].copy()
            infos[number]["TimeLimit.truncated"] = not terminated[number]
        return infos

    def close(self) -> None:
        """There is nothing to close."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        del indices
        return [None if attr_name == "render_mode" else getattr(self, attr_name)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError(attr_name)

    def env_method(self, method_name: str, *args: Any, **kwargs: Any) -> list[Any]:
        raise NotImplementedError(method_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        del wrapper_class, indices
        return [False] * self.num_envs
