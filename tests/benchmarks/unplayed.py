"""An environment for learners that are only measured, and rows for their replay buffers."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Unplayed(gymnasium.Env[Any, Any]):
    """Says the widths of observations and actions to a library, and is never stepped."""

    def __init__(self, features: int, actions: int) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (features,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (actions,), np.float32)


def fill(buffer: Any, rows: int, random: np.random.Generator) -> None:
    """Put random transitions into a replay buffer of stable-baselines3, in place."""
    buffer.observations[:] = random.standard_normal(buffer.observations.shape)
    buffer.next_observations[:] = random.standard_normal(buffer.next_observations.shape)
    buffer.actions[:] = random.uniform(-1.0, 1.0, buffer.actions.shape)
    buffer.rewards[:] = random.standard_normal(buffer.rewards.shape)
    buffer.pos, buffer.full = rows - 1, False
