"""The base of both PettingZoo wrappers: agents by name, with their spaces and actions."""

from __future__ import annotations

from typing import Any

from gymnasium import error, spaces
from numpy.typing import NDArray

from arkml.base.closing import Closing
from arkml.base.sealed import Sealed
from arkml.envs.llapi.base_env import ActionTuple, BaseEnv
from arkml.envs.llapi.envs.env_helpers import agent_id_to_behavior, unwrap_batch_steps
from arkml.envs.llapi.envs.unity_spaces import action_row, action_space, observation_space


class UnityPettingzooBaseEnv(Sealed, Closing):
    """
    An environment whose agents are named `behavior?agent_id=N`.

    Agents come and go; each has its name for life. With `legacy_api`, values are as in PettingZoo
    before it distinguished terminations from truncations.
    """

    def __init__(
        self,
        env: BaseEnv,
        seed: int | None = None,
        metadata: dict[str, Any] | None = None,
        *,
        legacy_api: bool = False,
    ) -> None:
        """Wrap `env`, which is closed with this one. `seed` is for the action spaces."""
        super().__init__()
        self._env: BaseEnv | None = env
        self.metadata = metadata or {"name": "unity", "render_modes": []}
        self.render_mode = None
        self.max_cycles: int | None = None  # PettingZoo's tests set it; the player decides
        self._seed = seed
        self._legacy_api = legacy_api
        self._side_channel_dict = _channels(env)
        self._observation_spaces: dict[str, spaces.Space[Any]] = {}
        self._action_spaces: dict[str, spaces.Space[Any]] = {}
        self._possible_agents: set[str] = set()
        self._agent_index = 0
        self._forget()
        if not env.behavior_specs:
            env.step()  # the first step reports the behaviors' specs
        self._update_spaces()

    def _forget(self) -> None:
        self._agents: list[str] = []  # all agents of this step, in order of their turns
        self._live_agents: list[str] = []
        self._observations: dict[str, Any] = {}
        self._rewards: dict[str, float] = {}
        self._cumm_rewards: dict[str, float] = {}
        self._terminations: dict[str, bool] = {}
        self._truncations: dict[str, bool] = {}
        self._infos: dict[str, dict[str, Any]] = {}
        self._rows: dict[str, int] = {}
        self._current_action: dict[str, ActionTuple] = {}

    @property
    def observation_spaces(self) -> dict[str, spaces.Space[Any]]:
        """Observation space of each agent since the last reset."""
        return {agent: self.observation_space(agent) for agent in self._possible_agents}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Return the observation space of an agent, without masks."""
        return self._observation_spaces[agent_id_to_behavior(agent)]

    @property
    def action_spaces(self) -> dict[str, spaces.Space[Any]]:
        """Action space of each agent since the last reset."""
        return {agent: self.action_space(agent) for agent in self._possible_agents}

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Return the action space of an agent, an object shared by its behavior's agents."""
        return self._action_spaces[agent_id_to_behavior(agent)]

    @property
    def side_channel(self) -> dict[str, Any]:
        """Side channels of the environment, by class name."""
        self._loaded()
        return self._side_channel_dict

    @property
    def agents(self) -> list[str]:
        """Agents that take part now."""
        return sorted(self._live_agents)

    @property
    def possible_agents(self) -> list[str]:
        """All agents since the last reset. More may appear."""
        return sorted(self._possible_agents)

    @property
    def rewards(self) -> dict[str, float]:
        return dict(self._rewards)

    @property
    def terminations(self) -> dict[str, bool]:
        return dict(self._terminations)

    @property
    def truncations(self) -> dict[str, bool]:
        return dict(self._truncations)

    @property
    def dones(self) -> dict[str, bool]:
        """Agents, with True if they have ended by termination or truncation."""
        return {
            agent: ended or self._truncations[agent] for agent, ended in self._terminations.items()
        }

    @property
    def infos(self) -> dict[str, dict[str, Any]]:
        return dict(self._infos)

    @property
    def _cumulative_rewards(self) -> dict[str, float]:
        return self._cumm_rewards

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """
        Begin new episodes.

        `seed` is for the action spaces, since the environment is already running.
        """
        del options  # an environment has no options
        env = self._loaded()
        if seed is not None:
            self.seed(seed)
        env.reset()
        self._agent_index = 0
        self._possible_agents = set()
        self._observe(env)
        self._forget_rewards()

    def seed(self, seed: int | None = None) -> None:
        """Seed the action spaces."""
        self._seed = seed
        for space in self._action_spaces.values():
            space.seed(seed)

    def render(self, mode: str = "human") -> None:
        """Do nothing: a player shows itself."""

    def state(self) -> None:
        """Return None: there is no state besides the observations."""

    def close(self) -> None:
        """Close the environment. Idempotent."""
        env, self._env = self._env, None
        if env is not None:
            env.close()

    def _loaded(self) -> BaseEnv:
        if self._env is None:
            raise error.Error("No environment loaded")
        return self._env

    def _checked(self, agent: str, action: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the continuous and the discrete part of an action. Raises gymnasium's Error."""
        if agent not in self._rows:
            raise error.Error(f"The agent {agent} does not need an action.")
        return action_row(self.action_space(agent), action)

    def _set_action(self, agent: str, action: tuple[NDArray[Any], NDArray[Any]]) -> None:
        actions = self._current_action[agent_id_to_behavior(agent)]
        actions.continuous[self._rows[agent]], actions.discrete[self._rows[agent]] = action

    def _step(self) -> None:
        env = self._loaded()
        for behavior_name, actions in self._current_action.items():
            env.set_actions(behavior_name, actions)
        env.step()
        self._agent_index = 0
        self._observe(env)

    def _observe(self, env: BaseEnv) -> None:
        self._update_spaces()
        self._forget()
        for behavior_name, spec in env.behavior_specs.items():
            batch = env.get_steps(behavior_name)
            named = unwrap_batch_steps(batch, behavior_name)
            self._current_action[behavior_name] = spec.action_spec.empty_action(len(batch[0]))
            self._agents += named.agents
            self._observations |= named.observations
            self._rewards |= named.rewards
            self._terminations |= named.terminations
            self._truncations |= named.truncations
            self._infos |= named.infos
            self._rows |= named.rows
        self._cumm_rewards = dict(self._rewards)
        self._live_agents = sorted(self._agents)
        self._possible_agents |= set(self._agents)

    def _update_spaces(self) -> None:
        """Add the spaces of new behaviors."""
        for name, spec in self._loaded().behavior_specs.items():
            if name not in self._action_spaces:
                self._observation_spaces[name] = observation_space(spec)
                self._action_spaces[name] = action_space(spec.action_spec)
                if self._seed is not None:
                    self._action_spaces[name].seed(self._seed)

    def _forget_rewards(self) -> None:
        self._rewards = dict.fromkeys(self._rewards, 0.0)
        self._cumm_rewards = dict.fromkeys(self._rewards, 0.0)


def _channels(env: BaseEnv) -> dict[str, Any]:
    # Environments that have side channels keep them so; trainers reach in as well.
    manager = getattr(env, "_side_channel_manager", None)
    channels = getattr(manager, "_side_channels_dict", {})
    return {type(channel).__name__: channel for channel in channels.values()}
