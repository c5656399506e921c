"""Conversion of a guest's rows to steps of ML-Agents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from arkml.batches import Floats
from arkml.envs.core.decisions import Behavior, Decision
from arkml.envs.core.specs import ObservationPart, Spec, Values
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
from arkml.hive.protocol.parts import WHITE


@dataclass(frozen=True, slots=True)
class Met:
    """A behavior that has appeared: its name for trainers, and an empty batch of ended agents."""

    behavior: Behavior
    name: BehaviorName
    spec: BehaviorSpec
    none_ended: TerminalSteps


def behavior_spec(behavior: Behavior) -> BehaviorSpec:
    """Return the ML-Agents spec of a behavior."""
    seen = [
        ObservationSpec(
            *_form(part),
            ObservationType.GOAL_SIGNAL if part.is_goal else ObservationType.DEFAULT,
            part.name,
        )
        for part in behavior.spec.observations
    ]
    actions = behavior.spec.actions
    return BehaviorSpec(seen, ActionSpec(actions.continuous, actions.branches))


def steps_of(decision: Decision, met: Met) -> tuple[DecisionSteps, TerminalSteps]:
    """Return the rows of a submit in push order, split into decisions and ended agents."""
    ended, declared = decision.ended, decision.behavior.spec
    over = ended.nonzero()[0]
    observations, rewards, agents = decision.observations, decision.rewards, decision.agents
    if not len(over):
        masks = list(decision.masks) or None
        parts = _shown(declared, observations)
        return DecisionSteps(parts, rewards, agents, masks, *_groups(len(agents))), met.none_ended
    live = (~ended).nonzero()[0]
    deciding = DecisionSteps(
        _shown(declared, observations.take(live, 0)),
        rewards[live],
        agents[live],
        [masks.take(live, 0) for masks in decision.masks] or None if len(live) else None,
        *_groups(len(live)),
    )
    terminal = TerminalSteps(
        _shown(declared, observations.take(over, 0)),
        rewards[over],
        decision.truncated[over],
        agents[over],
        *_groups(len(over)),
    )
    return deciding, terminal


def _form(part: ObservationPart) -> tuple[tuple[int, ...], tuple[DimensionProperty, ...]]:
    """
    Return the shape of a part in ML-Agents, and the properties of its dimensions.

    Grids and images have their channels first, as in its releases from 20 on. The number of
    entities varies, and rows of zeros stand for missing ones.
    """
    if part.kind == "entities":
        return part.shape, (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE)
    if part.kind in ("grid", "image"):
        height, width, *channels = part.shape
        along = DimensionProperty.TRANSLATIONAL_EQUIVARIANCE
        first = part.categories or channels[0]
        return (first, height, width), (DimensionProperty.NONE, along, along)
    return part.shape, (DimensionProperty.NONE,) * len(part.shape)


def _shown(spec: Spec, observations: Floats) -> list[Floats]:
    """Return observations, float32, [n, num_features], by part in the shapes of `_form`."""
    return [
        _as_shown(part, values)
        for part, values in zip(spec.observations, spec.parts(observations), strict=True)
    ]


def _as_shown(part: ObservationPart, values: Values) -> Floats:
    if part.kind == "image":  # as its compressed observations, from 0 to 1
        values = values * np.float32(1.0 / WHITE)
    elif part.categories:
        values = (values[..., None] == np.arange(part.categories)).astype(np.float32)
    if part.kind in ("grid", "image"):
        values = np.ascontiguousarray(np.moveaxis(values, -1, 1))
    return values


def _groups(count: int) -> tuple[Any, Any]:
    """Return group ids and group rewards, [count]: zeros, since agents have no groups."""
    return np.zeros(count, np.int32), np.zeros(count, np.float32)
