"""What an environment shows and takes: steps, specifications and the interface itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from enum import Enum, IntFlag
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from arkml.envs.llapi.actions import ActionSpec, ActionTuple, Array, _ActionTupleBase

__all__ = [
    "ActionSpec",
    "ActionTuple",
    "AgentId",
    "BaseEnv",
    "BehaviorMapping",
    "BehaviorName",
    "BehaviorSpec",
    "DecisionStep",
    "DecisionSteps",
    "DimensionProperty",
    "GroupId",
    "ObservationSpec",
    "ObservationType",
    "TerminalStep",
    "TerminalSteps",
    "_ActionTupleBase",
]

AgentId: TypeAlias = int
GroupId: TypeAlias = int
BehaviorName: TypeAlias = str

Step = TypeVar("Step")


class DecisionStep(NamedTuple):
    """
    What one agent collected since its last step, and decides on now.

    obs: one array for each observation. action_mask: bool, [branch size], for each discrete
    branch, true where a choice is not to be had; or None.
    """

    obs: list[Array]
    reward: float
    agent_id: AgentId
    action_mask: list[Array] | None
    group_id: int
    group_reward: float


class TerminalStep(NamedTuple):
    """What one agent collected up to the end of its episode; `interrupted` if that was cut."""

    obs: list[Array]
    reward: float
    interrupted: bool
    agent_id: AgentId
    group_id: GroupId
    group_reward: float


class _Steps(Mapping[AgentId, Step]):
    """Steps of many agents in arrays, found by their ids."""

    def __init__(
        self,
        obs: list[Array],
        reward: Array,
        agent_id: Array,
        group_id: Array,
        group_reward: Array,
    ) -> None:
        self.obs = obs
        self.reward = reward
        self.agent_id = agent_id
        self.group_id = group_id
        self.group_reward = group_reward
        self._agent_id_to_index: dict[AgentId, int] | None = None

    @property
    def agent_id_to_index(self) -> dict[AgentId, int]:
        """In which row each agent is."""
        if self._agent_id_to_index is None:
            self._agent_id_to_index = {
                agent: row for row, agent in enumerate(self.agent_id.tolist())
            }
        return self._agent_id_to_index

    def __len__(self) -> int:
        return len(self.agent_id)

    def __iter__(self) -> Iterator[AgentId]:
        yield from self.agent_id

    def _row(self, agent_id: AgentId) -> int:
        if agent_id not in self.agent_id_to_index:
            raise KeyError(f"agent_id {agent_id} is not present in the {type(self).__name__}")
        return self.agent_id_to_index[agent_id]

    def _obs_of(self, row: int) -> list[Array]:
        return [batch[row] for batch in self.obs]


class DecisionSteps(_Steps[DecisionStep]):
    """
    Steps of the agents that decide now, n of them, found by agent id.

    obs: [n, *shape] for each observation. reward, group_reward: float32, [n]. agent_id, group_id:
    int32, [n]. action_mask: bool, [n, branch size], for each discrete branch, or None.
    """

    def __init__(
        self,
        obs: list[Array],
        reward: Array,
        agent_id: Array,
        action_mask: list[Array] | None,
        group_id: Array,
        group_reward: Array,
    ) -> None:
        super().__init__(obs, reward, agent_id, group_id, group_reward)
        self.action_mask = action_mask

    def __getitem__(self, agent_id: AgentId) -> DecisionStep:
        """The step of one agent. Raises KeyError."""
        row = self._row(agent_id)
        masks = self.action_mask
        return DecisionStep(
            self._obs_of(row),
            self.reward[row],
            agent_id,
            None if masks is None else [mask[row] for mask in masks],
            self.group_id[row],
            self.group_reward[row],
        )

    @staticmethod
    def empty(spec: BehaviorSpec) -> DecisionSteps:
        """Those of no agent."""
        none, nobody = np.zeros(0, np.float32), np.zeros(0, np.int32)
        return DecisionSteps(_no_obs(spec), none, nobody, None, nobody.copy(), none.copy())


class TerminalSteps(_Steps[TerminalStep]):
    """
    Steps of the agents whose episode has ended, n of them, found by agent id.

    interrupted: bool, [n]; the rest is as in DecisionSteps.
    """

    def __init__(
        self,
        obs: list[Array],
        reward: Array,
        interrupted: Array,
        agent_id: Array,
        group_id: Array,
        group_reward: Array,
    ) -> None:
        super().__init__(obs, reward, agent_id, group_id, group_reward)
        self.interrupted = interrupted

    def __getitem__(self, agent_id: AgentId) -> TerminalStep:
        """The step of one agent. Raises KeyError."""
        row = self._row(agent_id)
        return TerminalStep(
            self._obs_of(row),
            self.reward[row],
            self.interrupted[row],
            agent_id,
            self.group_id[row],
            self.group_reward[row],
        )

    @staticmethod
    def empty(spec: BehaviorSpec) -> TerminalSteps:
        """Those of no agent."""
        none, nobody = np.zeros(0, np.float32), np.zeros(0, np.int32)
        cut = np.zeros(0, bool)
        return TerminalSteps(_no_obs(spec), none, cut, nobody, nobody.copy(), none.copy())


class DimensionProperty(IntFlag):
    """What can be done with a dimension of an observation."""

    UNSPECIFIED = 0
    NONE = 1
    TRANSLATIONAL_EQUIVARIANCE = 2
    VARIABLE_SIZE = 4


class ObservationType(Enum):
    """What an observation is about."""

    DEFAULT = 0
    GOAL_SIGNAL = 1


class ObservationSpec(NamedTuple):
    """An observation: its shape, a property for each dimension, its type and its name."""

    shape: tuple[int, ...]
    dimension_property: tuple[DimensionProperty, ...]
    observation_type: ObservationType
    name: str


class BehaviorSpec(NamedTuple):
    """What the agents of a behaviour see and do."""

    observation_specs: list[ObservationSpec]
    action_spec: ActionSpec


class BehaviorMapping(Mapping[BehaviorName, BehaviorSpec]):
    """The behaviours of an environment, to be read only; they may become more."""

    def __init__(self, specs: dict[BehaviorName, BehaviorSpec]) -> None:
        self._dict = specs

    def __len__(self) -> int:
        return len(self._dict)

    def __getitem__(self, behavior: BehaviorName) -> BehaviorSpec:
        return self._dict[behavior]

    def __iter__(self) -> Iterator[Any]:
        yield from self._dict


class BaseEnv(ABC):
    """An environment with any number of behaviours, each of any number of agents."""

    @abstractmethod
    def step(self) -> None:
        """Go on until some agent has something to decide on."""

    @abstractmethod
    def reset(self) -> None:
        """Start over."""

    @abstractmethod
    def close(self) -> None:
        """Free what the environment holds."""

    @property
    @abstractmethod
    def behavior_specs(self) -> Mapping[BehaviorName, BehaviorSpec]:
        """The behaviours that have shown themselves so far."""

    @abstractmethod
    def set_actions(self, behavior_name: BehaviorName, action: ActionTuple) -> None:
        """Set the actions of all agents that decide, in the order of the DecisionSteps."""

    @abstractmethod
    def set_action_for_agent(
        self, behavior_name: BehaviorName, agent_id: AgentId, action: ActionTuple
    ) -> None:
        """Set the action of one agent, [1, size]."""

    @abstractmethod
    def get_steps(self, behavior_name: BehaviorName) -> tuple[DecisionSteps, TerminalSteps]:
        """Who decides now, and whose episode has ended."""


def _no_obs(spec: BehaviorSpec) -> list[Array]:
    return [np.zeros((0, *seen.shape), np.float32) for seen in spec.observation_specs]
