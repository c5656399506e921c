"""Steps of a behavior's agents: agents that need an action, and agents that ended."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from arkml.base.sealed import Sealed
from arkml.base.short_reprs import short_repr
from arkml.envs.llapi.specs import BehaviorSpec

AgentId = int
GroupId = int


class DecisionStep(NamedTuple):
    """
    The step of one agent that needs an action.

    Args:
        obs: A float32 array for each observation.
        reward: Reward of the agent.
        agent_id: Id of the agent.
        action_mask: A bool array for each discrete branch, True = not available; None without
            branches.
        group_id: Id of the agent's group, 0 for none.
        group_reward: Reward of the group.

    """

    obs: list[NDArray[np.float32]]
    reward: float
    agent_id: AgentId
    action_mask: list[NDArray[np.bool_]] | None
    group_id: GroupId
    group_reward: float

    def __repr__(self) -> str:
        return short_repr(self)


class TerminalStep(NamedTuple):
    """
    The last step of one agent.

    Args:
        obs: A float32 array for each observation.
        reward: Reward of the agent.
        interrupted: Whether a step limit cut the episode off.
        agent_id: Id of the agent.
        group_id: Id of the agent's group, 0 for none.
        group_reward: Reward of the group.

    """

    obs: list[NDArray[np.float32]]
    reward: float
    interrupted: bool
    agent_id: AgentId
    group_id: GroupId
    group_reward: float

    def __repr__(self) -> str:
        return short_repr(self)


_CACHE = "_agent_id_to_index"

S = TypeVar("S", DecisionStep, TerminalStep)


class _Steps(Sealed, Mapping[AgentId, S]):
    """A batch by agent id, in the order in which the environment reported the agents."""

    agent_id: NDArray[np.int32]

    def __init__(self) -> None:
        self._agent_id_to_index: dict[AgentId, int] | None = None

    @property
    def agent_id_to_index(self) -> dict[AgentId, int]:
        """The row of each agent."""
        if self._agent_id_to_index is None:
            self._agent_id_to_index = {int(agent): row for row, agent in enumerate(self.agent_id)}
        return self._agent_id_to_index

    def __len__(self) -> int:
        return len(self.agent_id)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.agent_id)

    def __getitem__(self, agent_id: AgentId) -> S:
        """Return the step of one agent. Raises KeyError if it is not in the batch."""
        row = self.agent_id_to_index.get(agent_id)
        if row is None:
            raise KeyError(f"agent_id {agent_id} is not present in the {type(self).__name__}")
        return self._step(agent_id, row)

    def __eq__(self, other: object) -> bool:
        """
        Return whether all arrays are equal.

        Comparing as mappings would compare arrays directly.
        """
        if not isinstance(other, type(self)):
            return NotImplemented
        mine, theirs = vars(self), vars(other)
        return all(_is_same(mine[name], theirs[name]) for name in mine if name != _CACHE)

    __hash__ = None  # type: ignore[assignment]  # they can be changed

    @abstractmethod
    def _step(self, agent_id: AgentId, row: int) -> S: ...


class DecisionSteps(_Steps[DecisionStep]):
    """
    A batch of agents that need an action.

    Args:
        obs: float32, [agents, ...], for each observation.
        reward: float32, [agents].
        agent_id: int32, [agents].
        action_mask: bool, [agents, choices], for each discrete branch, True = not available; or
            None.
        group_id: int32, [agents].
        group_reward: float32, [agents].

    """

    def __init__(
        self,
        obs: list[NDArray[np.float32]],
        reward: NDArray[np.float32],
        agent_id: NDArray[np.int32],
        action_mask: list[NDArray[np.bool_]] | None,
        group_id: NDArray[np.int32],
        group_reward: NDArray[np.float32],
    ) -> None:
        super().__init__()
        self.obs = obs
        self.reward = reward
        self.agent_id = agent_id
        self.action_mask = action_mask
        self.group_id = group_id
        self.group_reward = group_reward

    def _step(self, agent_id: AgentId, row: int) -> DecisionStep:
        masks = self.action_mask
        return DecisionStep(
            obs=_row(self.obs, row),
            reward=self.reward[row],
            agent_id=agent_id,
            action_mask=None if masks is None else [mask[row] for mask in masks],
            group_id=self.group_id[row],
            group_reward=self.group_reward[row],
        )

    @staticmethod
    def empty(spec: BehaviorSpec) -> DecisionSteps:
        """Return a batch without agents."""
        return DecisionSteps(
            obs=_no_observations(spec),
            reward=np.zeros(0, dtype=np.float32),
            agent_id=np.zeros(0, dtype=np.int32),
            action_mask=None,
            group_id=np.zeros(0, dtype=np.int32),
            group_reward=np.zeros(0, dtype=np.float32),
        )


class TerminalSteps(_Steps[TerminalStep]):
    """
    A batch of agents that ended.

    Args:
        obs: float32, [agents, ...], for each observation.
        reward: float32, [agents].
        interrupted: bool, [agents]: whether a step limit cut the episode off.
        agent_id: int32, [agents].
        group_id: int32, [agents].
        group_reward: float32, [agents].

    """

    def __init__(
        self,
        obs: list[NDArray[np.float32]],
        reward: NDArray[np.float32],
        interrupted: NDArray[np.bool_],
        agent_id: NDArray[np.int32],
        group_id: NDArray[np.int32],
        group_reward: NDArray[np.float32],
    ) -> None:
        super().__init__()
        self.obs = obs
        self.reward = reward
        self.interrupted = interrupted
        self.agent_id = agent_id
        self.group_id = group_id
        self.group_reward = group_reward

    def _step(self, agent_id: AgentId, row: int) -> TerminalStep:
        return TerminalStep(
            obs=_row(self.obs, row),
            reward=self.reward[row],
            interrupted=self.interrupted[row],
            agent_id=agent_id,
            group_id=self.group_id[row],
            group_reward=self.group_reward[row],
        )

    @staticmethod
    def empty(spec: BehaviorSpec) -> TerminalSteps:
        """Return a batch without agents."""
        return TerminalSteps(
            obs=_no_observations(spec),
            reward=np.zeros(0, dtype=np.float32),
            interrupted=np.zeros(0, dtype=bool),
            agent_id=np.zeros(0, dtype=np.int32),
            group_id=np.zeros(0, dtype=np.int32),
            group_reward=np.zeros(0, dtype=np.float32),
        )


def _row(observations: Sequence[NDArray[np.float32]], row: int) -> list[NDArray[np.float32]]:
    return [observation[row] for observation in observations]


def _is_same(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, list) and isinstance(theirs, list):
        return len(mine) == len(theirs) and all(map(np.array_equal, mine, theirs))
    return np.array_equal(mine, theirs)


def _no_observations(spec: BehaviorSpec) -> list[NDArray[np.float32]]:
    return [np.zeros((0, *each.shape), dtype=np.float32) for each in spec.observation_specs]
