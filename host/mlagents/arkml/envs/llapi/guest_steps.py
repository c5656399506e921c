"""Conversion of a guest's rows to steps of ML-Agents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from arkml.envs.core.decisions import Behavior, Decision
from arkml.envs.llapi.base_env import (
    ActionSpec,
    BehaviorName,
    BehaviorSpec,
    DecisionSteps,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
    TerminalSteps,
)


@dataclass(frozen=True, slots=True)
class Met:
    """A behavior under its name for trainers, with an empty batch of ended agents."""

    behavior: Behavior
    name: BehaviorName
    spec: BehaviorSpec
    none_ended: TerminalSteps


def behavior_spec(behavior: Behavior) -> BehaviorSpec:
    """Return the ML-Agents spec of a behavior."""
    seen = [
        ObservationSpec(
            part.shape,
            (DimensionProperty.NONE,) * len(part.shape),
            ObservationType.GOAL_SIGNAL if part.is_goal else ObservationType.DEFAULT,
            part.name,
        )
        for part in behavior.spec.observations
    ]
    actions = behavior.spec.actions
    return BehaviorSpec(seen, ActionSpec(actions.continuous, actions.branches))


def steps_of(decision: Decision, met: Met) -> tuple[DecisionSteps, TerminalSteps]:
    """Return the rows of a submit in push order, ended agents separately."""
    ended, declared = decision.ended, decision.behavior.spec
    over = ended.nonzero()[0]
    observations, rewards, agents = decision.observations, decision.rewards, decision.agents
    if not len(over):
        masks = list(decision.masks) or None
        parts = declared.parts(observations)
        return DecisionSteps(parts, rewards, agents, masks, *_groups(len(agents))), met.none_ended
    live = (~ended).nonzero()[0]
    deciding = DecisionSteps(
        declared.parts(observations.take(live, 0)),
        rewards[live],
        agents[live],
        [masks.take(live, 0) for masks in decision.masks] or None if len(live) else None,
        *_groups(len(live)),
    )
    terminal = TerminalSteps(
        declared.parts(observations.take(over, 0)),
        rewards[over],
        decision.truncated[over],
        agents[over],
        *_groups(len(over)),
    )
    return deciding, terminal


def _groups(count: int) -> tuple[Any, Any]:
    """Return group ids and group rewards, [count]: zeros, since agents have no groups."""
    return np.zeros(count, np.int32), np.zeros(count, np.float32)
