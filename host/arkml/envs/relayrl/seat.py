"""One guest, as the environments of RelayRL step it."""

from __future__ import annotations

from typing import Any

import numpy as np

from arkml.batches import Floats
from arkml.environment.specs import Actions
from arkml.envs.one_agent import OneAgent
from arkml.envs.relayrl import checks
from arkml.envs.relayrl.kinds import EnvInfo
from arkml.errors import ArkmlError, UsageError


class Seat:
    """One guest, its present observation and the returns of its episodes."""

    def __init__(self, module: Any, seed: int | None, options: dict[str, Any]) -> None:
        try:
            self.agent = OneAgent(module, checks.WHO, **options)
        except UsageError as error:
            raise checks.refused(str(error)) from error
        except ArkmlError as error:
            raise checks.refused(f"the guest does not start: {error}") from error
        self._seed = seed
        self.seen: Floats | None = None
        self.returns: list[float] = []
        self._sum = 0.0

    @property
    def width(self) -> int:
        return self.agent.behaviour.num_actions

    @property
    def actions(self) -> Actions:
        return self.agent.behaviour.spec.actions

    def reset(self) -> tuple[Floats, EnvInfo | None]:
        seed, self._seed = self._seed, None
        try:
            self.seen, info = self.agent.reset(seed)
        except ArkmlError as error:
            raise checks.refused(f"the guest begins no episode: {error}") from error
        self._sum = 0.0
        return self.seen, self._told(info)

    def step(self, action: Floats) -> tuple[Floats, float, bool, bool, EnvInfo | None]:
        """A guest that has one agent no more ends the episode as one that fails does."""
        try:
            self.seen, reward, terminated, truncated, info = self.agent.step(action)
        except UsageError as error:
            assert self.seen is not None
            reward, terminated, truncated, info = 0.0, False, True, {"error": str(error)}
        self._sum += reward
        if terminated or truncated:
            self.returns.append(self._sum)
        return self.seen, reward, terminated, truncated, self._told(info)

    def require_playing(self) -> None:
        if self.seen is None:
            raise checks.refused("reset the environment before its first step")
        if not self.agent.is_playing:
            raise checks.refused("the episode has ended: reset the environment")

    def _told(self, info: dict[str, Any]) -> EnvInfo | None:
        """What is told of a step, and `mask/BRANCH/CHOICE` for what cannot be chosen."""
        assert self.agent.shown is not None
        decision, row = self.agent.shown
        masked = [
            (f"mask/{branch}/{choice}", "1.0")
            for branch, masks in enumerate(decision.masks)
            for choice in np.flatnonzero(masks[row])
        ]
        return [(name, str(value)) for name, value in info.items()] + masked or None
