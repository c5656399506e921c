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
    none_ended: TerminalSteps


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
        return deciding, met.none_ended
    live, over = (~ended).nonzero()[0], ended.nonzero()[0]
    deciding = DecisionSteps(
        declared.parts(decision.observations.take(live, 0)),
        decision.rewards.take(live),
        decision.agents.take(live),
        [masks.take(live, 0) for masks in decision.masks] or None if len(live) else None,
        *_groups(len(live)),
    )
    terminal = TerminalSteps(
        declared.parts(decision.observations.take(over, 0)),
        decision.rewards.take(over),
        decision.truncated.take(over),
        decision.agents.take(over),
        *_groups(len(over)),
    )
    return deciding, terminal


def _groups(count: int) -> tuple[Any, Any]:
    """Return ids and rewards of groups, [count]: zeros, since agents are in none."""
    return np.zeros(count, np.int32), np.zeros(count, np.float32)
