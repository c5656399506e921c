"""The environment that trainers step, and the records that it returns."""

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

    The agents that report, and their order, change from step to step; an agent is identified by
    its id. One that ended may be in the same step's decisions again: its next episode has begun.
    """

    @abstractmethod
    def step(self) -> None:
        """Run until an agent needs an action. Agents that were given none take zeros."""

    @abstractmethod
    def reset(self) -> None:
        """Reset the environment; every agent begins a new episode."""

    @abstractmethod
    def close(self) -> None:
        """End the environment. It cannot be used afterwards. Safe to call again."""

    @property
    @abstractmethod
    def behavior_specs(self) -> Mapping[str, BehaviorSpec]:
        """The behaviors that have appeared, by name; empty before the first reset or step."""

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
        Set the action of one agent, as arrays with one row.

        Raises UnityActionException as `set_actions`, and IndexError for an agent that needs none.
        """

    @abstractmethod
    def get_steps(self, behavior_name: BehaviorName) -> tuple[DecisionSteps, TerminalSteps]:
        """Return the agents of a behavior that need an action, and those that ended."""
