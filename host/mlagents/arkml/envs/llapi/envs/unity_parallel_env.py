"""An ML-Agents environment as a PettingZoo environment whose agents act together."""

from __future__ import annotations

from typing import Any

from gymnasium import error
from pettingzoo import ParallelEnv

from arkml.envs.llapi.base_env import BaseEnv
from arkml.envs.llapi.envs.unity_pettingzoo_base_env import UnityPettingzooBaseEnv


class UnityParallelEnv(UnityPettingzooBaseEnv, ParallelEnv[str, Any, Any]):  # type: ignore[misc]  # untyped
    """All agents that need an action act at once; those left out take zeros."""

    def __init__(self, env: BaseEnv, seed: int | None = None, *, legacy_api: bool = False) -> None:
        super().__init__(env, seed, legacy_api=legacy_api)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin anew. Returns the observations and infos by agent."""
        super().reset(seed, options)
        return self._observations if self._legacy_api else (self._observations, self._infos)

    def step(self, actions: dict[str, Any]) -> Any:
        """
        Act. Returns observations, rewards, terminations, truncations and infos by agent.

        Those that ended are in them once more. Raises gymnasium's Error before a reset, and for
        an action that does not fit or of an agent that needs none; nothing has moved then.
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
