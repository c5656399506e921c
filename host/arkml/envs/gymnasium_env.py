"""A guest with one agent as a Gymnasium environment."""

from __future__ import annotations

from typing import Any

import gymnasium

from arkml.batches import Floats
from arkml.environment.guest_env import GuestEnv
from arkml.envs.one_agent import OneAgent, Outcome
from arkml.envs.spaces import action_space, observation_space
from arkml.errors import UsageError


class GuestGymnasiumEnv(gymnasium.Env[Floats, Floats]):
    """
    Steps the one agent of a guest; `options` are those of `GuestEnv`.

    Observations are float32, [num_features], actions float32, [num_actions], within [-1, 1]. The
    agent's episode is that of the environment. `reset` after its end, without a seed, goes on with
    the same instance to the next episode, else it makes a new one. Where the guest has finished or
    failed the episode is truncated, and `info` has "guest_done" or "error".
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 60}  # noqa: RUF012  theirs

    def __init__(self, module: Any, *, render_mode: str | None = None, **options: Any) -> None:
        if render_mode not in (None, "ansi"):
            raise UsageError(f"render_mode is {render_mode!r}: it takes None or 'ansi'")
        self.render_mode = render_mode
        self._agent = OneAgent(module, "a Gymnasium environment", **options)
        self.observation_space = observation_space(self._agent.behaviour)
        self.action_space = action_space(self._agent.behaviour)
        self._seen: Floats | None = None
        self._reward = 0.0

    @property
    def guest_env(self) -> GuestEnv:
        """What is stepped."""
        return self._agent.env

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """The first observation of an episode. Raises GuestError if the guest has none."""
        super().reset(seed=seed, options=options)
        self._seen, info = self._agent.reset(seed)
        self._reward = 0.0
        return self._seen, info

    def step(self, action: Any) -> Outcome:
        """Raises InvalidActions, and gymnasium's ResetNeeded between two episodes."""
        if not self._agent.is_playing:
            raise gymnasium.error.ResetNeeded("reset the environment before its first step")
        outcome = self._agent.step(self._agent.checked(action))
        self._seen, self._reward = outcome[:2]
        return outcome

    def render(self) -> str | None:
        """The last observation and reward as a line, with render_mode "ansi"."""
        if self.render_mode is None or self._seen is None:
            return None
        features = "  ".join(f"{value:9.4f}" for value in self._seen)
        return f"observation {features}   reward {self._reward:9.4f}\n"

    def close(self) -> None:
        self._agent.close()
