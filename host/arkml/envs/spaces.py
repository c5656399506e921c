"""The Gymnasium spaces of a behaviour."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from arkml.batches import Floats
from arkml.environment.decisions import Behaviour

Space = spaces.Space[Floats]


def observation_space(behaviour: Behaviour) -> Space:
    """float32, (num_features,), without bounds."""
    return _box(-np.inf, np.inf, behaviour.num_features)


def action_space(behaviour: Behaviour) -> Space:
    """float32, (num_actions,), from -1 to 1."""
    return _box(-1.0, 1.0, behaviour.num_actions)


def _box(low: float, high: float, width: int) -> Space:
    box: Any = spaces.Box(low, high, (width,), np.float32)  # its own type says any number
    space: Space = box
    return space
