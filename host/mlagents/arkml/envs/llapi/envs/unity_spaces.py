"""The spaces of a behavior, and conversion of their actions for the environment."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import error, spaces
from numpy.typing import NDArray

from arkml.envs.llapi.actions import numbers
from arkml.envs.llapi.base_env import ActionSpec, BehaviorSpec
from arkml.envs.llapi.exception import UnityActionException


def observation_space(spec: BehaviorSpec) -> spaces.Space[Any]:
    """Return a box, or a tuple with a box for each observation if there are several."""
    boxes = [
        spaces.Box(-np.inf, np.inf, each.shape, dtype=np.float32) for each in spec.observation_specs
    ]
    return boxes[0] if len(boxes) == 1 else spaces.Tuple(boxes)


def action_space(spec: ActionSpec) -> spaces.Space[Any]:
    """
    Return a box of continuous actions, the discrete choices, or a tuple of both.

    Raises gymnasium's Error for a behavior without actions.
    """
    if spec.continuous_size == 0 and spec.discrete_size == 0:
        raise error.Error("No actions found")
    box = spaces.Box(-1, 1, (spec.continuous_size,), dtype=np.float32)
    if spec.discrete_size == 0:
        return box
    if spec.continuous_size:
        return spaces.Tuple((box, spaces.MultiDiscrete(list(spec.discrete_branches))))
    if spec.discrete_size == 1:
        return spaces.Discrete(spec.discrete_branches[0])
    return spaces.MultiDiscrete(list(spec.discrete_branches))


def action_row(space: spaces.Space[Any], action: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """
    Return the parts of an action: float32, [continuous_size], and int32, [branches].

    Raises gymnasium's Error for an action outside of the space.
    """
    try:
        checked = (
            tuple(
                numbers(np.asarray(part), each.dtype)
                for part, each in zip(action, space, strict=True)
            )
            if isinstance(space, spaces.Tuple)
            else numbers(np.asarray(action), space.dtype)
        )
        fits = space.contains(checked)
    except (TypeError, ValueError, UnityActionException):
        fits = False
    if not fits:
        raise error.Error(f"Invalid action, got {action} but was expecting action from {space}")
    match space:
        case spaces.Tuple():
            return checked[0], checked[1].astype(np.int32)
        case spaces.Box():
            return np.asarray(checked), np.zeros(0, dtype=np.int32)
        case _:
            return np.zeros(0, dtype=np.float32), np.atleast_1d(checked).astype(np.int32)
