"""An ML-Agents environment as a PettingZoo environment whose agents act together."""

from __future__ import annotations

from typing import Any

from gymnasium import error
from pettingzoo import ParallelEnv

from arkml.envs.llapi.base_env import BaseEnv
from arkml.envs.llapi.envs.unity_pettingzoo_base_env import UnityPettingzooBaseEnv


class UnityParallelEnv(UnityPettingzooBaseEnv, ParallelEnv[str, Any, Any]):  # type: ignore[misc]  # untyped
    """
    A PettingZoo parallel environment: all agents act at once; agents without actions get zeros.

    Args:
        env: Environment to wrap, which is closed with this one.
        seed: Seed of the action spaces.
        legacy_api: Whether to return values of PettingZoo before it distinguished terminations from
            truncations.

    """

    def __init__(self, env: BaseEnv, seed: int | None = None, *, legacy_api: bool = False) -> None:
        super().__init__(env, seed, legacy_api=legacy_api)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin new episodes. Returns the observations and infos by agent."""
        super().reset(seed, options)
        return self._observations if self._legacy_api else (self._observations, self._infos)

    def step(self, actions: dict[str, Any]) -> Any:
        """
        Act. Returns observations, rewards, terminations, truncations and infos by agent.

        Agents that ended appear once more. Raises gymnasium's Error, without stepping, before a
        reset, for an invalid action, and for an agent that needs no action.
        """
        self._loaded()
        if not self._live_agents and actions:
            raise error.Error("You must reset the environment before you can perform a step.")
        checked = {agent: self._checked(agent, action) for agent, action in actions.items()}
        for agent, action in checked.items():
            self._set_action(agent, action)
        self._step()
        dones = self.dones
        self._live_agents = [agent for agent in self._live_agents if not dones[agent]]
        if self._legacy_api:
            return self._observations, self._rewards, dones, self._infos
        return (
            self._observations,
            self._rewards,
            self._terminations,
            self._truncations,
            self._infos,
        )
