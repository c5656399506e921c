"""An ML-Agents environment as a PettingZoo environment whose agents take turns."""

from __future__ import annotations

from typing import Any

from gymnasium import error
from pettingzoo import AECEnv

from arkml.envs.llapi.base_env import BaseEnv
from arkml.envs.llapi.envs.unity_pettingzoo_base_env import UnityPettingzooBaseEnv


class UnityAECEnv(UnityPettingzooBaseEnv, AECEnv[str, Any, Any]):  # type: ignore[misc]  # untyped
    """
    A PettingZoo AEC environment: agents act in turn, and the environment steps after the last.

    Args:
        env: Environment to wrap, which is closed with this one.
        seed: Seed of the action spaces.
        legacy_api: Whether to return values of PettingZoo before it distinguished terminations from
            truncations.

    """

    def __init__(self, env: BaseEnv, seed: int | None = None, *, legacy_api: bool = False) -> None:
        super().__init__(env, seed, legacy_api=legacy_api)

    def step(self, action: Any) -> None:
        """
        Act as the agent whose turn it is. An agent that ended takes None and leaves.

        Raises gymnasium's Error before a reset and for an action that does not fit.
        """
        self._loaded()
        if not self._live_agents:
            raise error.Error("You must reset the environment before you can perform a step")
        agent = self.agent_selection
        if self.dones[agent]:
            if action is not None:
                raise error.Error(f"The agent {agent} has ended: its action is None.")
            self._remove(agent)
        elif action is not None:  # None stands for zeros
            self._set_action(agent, self._checked(agent, action))
        self._agent_index += 1
        self._rewards = dict.fromkeys(self._rewards, 0.0)
        if self._agent_index >= len(self._agents) and self._live_agents:
            self._step()

    def observe(self, agent_id: str) -> Any:
        """Return the observation of an agent."""
        observation = self._observations[agent_id]
        if not self._legacy_api:
            return observation
        rewards, dones, infos = self._cumm_rewards, self.dones, self._infos
        return observation, rewards[agent_id], dones[agent_id], infos[agent_id]

    def last(self, observe: bool = True) -> Any:
        """Return observation, reward, termination, truncation and info of the selected agent."""
        agent = self.agent_selection
        observation = self._observations[agent] if observe else None
        reward, info = self._cumm_rewards[agent], self._infos[agent]
        if self._legacy_api:
            return observation, reward, self.dones[agent], info
        return observation, reward, self._terminations[agent], self._truncations[agent], info

    @property
    def agent_selection(self) -> str:
        """The agent whose turn it is; after all have ended, the first one."""
        return self._agents[self._agent_index if self._live_agents else 0]

    def _remove(self, agent: str) -> None:
        self._live_agents.remove(agent)
        for by_agent in (
            self._observations,
            self._terminations,
            self._truncations,
            self._rewards,
            self._cumm_rewards,
            self._infos,
        ):
            del by_agent[agent]
