"""The rows of a guest as the steps of ML-Agents."""

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
    """A behavior under the name that trainers know, with a batch of ended agents that is empty."""

    behavior: Behavior
    name: BehaviorName
    spec: BehaviorSpec
    nobody: TerminalSteps


def behavior_spec(behavior: Behavior) -> BehaviorSpec:
    """Return the spec of a behavior as ML-Agents has it."""
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
    """Return the rows of a submit in push order, those that ended apart."""
    ended, declared = decision.ended, decision.behavior.spec
    if not ended.any():
        count = len(decision)
        deciding = DecisionSteps(
            declared.parts(decision.observations),
            decision.rewards,
            decision.agents,
            list(decision.masks) or None,
            *_groups(count),
        )
        return deciding, met.nobody
    live = ~ended
    deciding = DecisionSteps(
        declared.parts(decision.observations[live]),
        decision.rewards[live],
        decision.agents[live],
        [masks[live] for masks in decision.masks] or None if live.any() else None,
        *_groups(int(live.sum())),
    )
    over = TerminalSteps(
        declared.parts(decision.observations[ended]),
        decision.rewards[ended],
        decision.truncated[ended],
        decision.agents[ended],
        *_groups(int(ended.sum())),
    )
    return deciding, over


def _groups(count: int) -> tuple[Any, Any]:
    """Return ids and rewards of groups, [count]: zeros, since agents are in none."""
    return np.zeros(count, np.int32), np.zeros(count, np.float32)
