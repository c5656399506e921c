"""The interface of an environment that trainers step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from arkml.base.closing import Closing
from arkml.base.sealed import Sealed
from arkml.envs.llapi.actions import ActionSpec, ActionTuple, _ActionTupleBase
from arkml.envs.llapi.specs import (
    BehaviorMapping,
    BehaviorName,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)
from arkml.envs.llapi.steps import (
    AgentId,
    DecisionStep,
    DecisionSteps,
    GroupId,
    TerminalStep,
    TerminalSteps,
)

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
    "_ActionTupleBase",  # its tests and trainers import it from here
]


class BaseEnv(Sealed, Closing):
    """
    Agents of one or more behaviors, stepped together.

    The reported agents and their order change from step to step; an agent is identified by its id.
    An agent that ended may also be among the decisions of the same step, if its next episode has
    begun.
    """

    @abstractmethod
    def step(self) -> None:
        """Run until an agent needs an action. Agents without actions get zeros."""

    @abstractmethod
    def reset(self) -> None:
        """Reset the environment; every agent begins a new episode."""

    @abstractmethod
    def close(self) -> None:
        """Close the environment for good. Idempotent."""

    @property
    @abstractmethod
    def behavior_specs(self) -> Mapping[str, BehaviorSpec]:
        """Behaviors that have appeared, by name; empty before the first reset or step."""

    @abstractmethod
    def set_actions(self, behavior_name: BehaviorName, action: ActionTuple) -> None:
        """
        Set the actions of all agents of a behavior, in the order of its DecisionSteps.

        Raises UnityActionException for an unknown behavior or actions that do not fit.
        """

    @abstractmethod
    def set_action_for_agent(
        self, behavior_name: BehaviorName, agent_id: AgentId, action: ActionTuple
    ) -> None:
        """
        Set the action of one agent.

        Args:
            behavior_name: Name of the behavior, such as "Ball?team=0".
            agent_id: Id of the agent, which is in the behavior's DecisionSteps.
            action: Arrays with one row.

        Raises:
            UnityActionException: The behavior is unknown, or the action does not fit.
            IndexError: The agent needs no action.

        """

    @abstractmethod
    def get_steps(self, behavior_name: BehaviorName) -> tuple[DecisionSteps, TerminalSteps]:
        """Return the agents of a behavior that need an action, and the agents that ended."""
