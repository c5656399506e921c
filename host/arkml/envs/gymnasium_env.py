"""A guest with one agent as a Gymnasium environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from arkml.batches import Floats
from arkml.environment.decisions import Decision, Step
from arkml.environment.guest_env import GuestEnv
from arkml.envs import behaviours
from arkml.errors import UsageError

_WHO = "a Gymnasium environment"


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
        self._env = GuestEnv(module, **options)
        self._agent: int | None = None
        self._seen: Floats | None = None
        self._reward = 0.0
        try:
            self._fresh: Step | None = self._env.reset()
            behaviour = _decision(self._fresh).behaviour
        except BaseException:
            self._env.close()
            raise
        self.observation_space = behaviours.observation_space(behaviour)
        self.action_space = behaviours.action_space(behaviour)

    @property
    def guest_env(self) -> GuestEnv:
        """What is stepped."""
        return self._env

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """The first observation of an episode. Raises GuestError if the guest has none."""
        super().reset(seed=seed, options=options)
        step, self._fresh = self._fresh, None
        if step is None or seed is not None:
            step = self._next_episode() if seed is None and self._agent is None else None
        if step is None:
            step = self._env.reset(seed)
        return self._begin(step)

    def step(self, action: Any) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Raises InvalidActions, and gymnasium's ResetNeeded between two episodes."""
        if self._agent is None:
            raise gymnasium.error.ResetNeeded("reset the environment before its first step")
        assert self.action_space.shape is not None
        values = behaviours.checked(action, self.action_space.shape, _WHO)
        step = self._env.step(values[None])
        decision = _decision(step)
        rows = np.flatnonzero(decision.agents == self._agent)
        if not len(rows):
            raise UsageError(f"the guest goes on with another agent: {_WHO} has one")
        row = rows[0]
        ended = bool(decision.terminated[row]), bool(decision.truncated[row])
        info = {**behaviours.metadata_of(decision, row), **behaviours.ending(step)}
        if any(ended):
            self._agent = None
        self._seen, self._reward = decision.observations[row], float(decision.rewards[row])
        return self._seen, self._reward, *ended, info

    def render(self) -> str | None:
        """The last observation and reward as a line, with render_mode "ansi"."""
        if self.render_mode is None or self._seen is None:
            return None
        features = "  ".join(f"{value:9.4f}" for value in self._seen)
        return f"observation {features}   reward {self._reward:9.4f}\n"

    def close(self) -> None:
        self._env.close()

    def _next_episode(self) -> Step | None:
        """On to where the same instance begins an episode; None if it does not."""
        decision = self._env.decision
        while decision is not None and not decision.started.any():
            idle = np.zeros((len(decision.deciding), decision.behaviour.num_actions))
            if self._env.step(idle).is_over:
                return None
            decision = self._env.decision
        return None if decision is None else Step((decision,))

    def _begin(self, step: Step) -> tuple[Floats, dict[str, Any]]:
        decision = _decision(step)
        row = int(np.flatnonzero(~decision.ended)[0])
        self._agent = int(decision.agents[row])
        self._seen, self._reward = decision.observations[row], 0.0
        info: dict[str, Any] = {**behaviours.metadata_of(decision, row)}
        if reward := float(decision.rewards[row]):
            info["reward"] = reward
        return self._seen, info


def _decision(step: Step) -> Decision:
    """The decision of a guest with one agent. Raises UsageError."""
    decision = behaviours.only_decision(step, _WHO)
    if len(decision.deciding) > 1:
        raise UsageError(
            f"{_WHO} has one agent, this guest {len(decision.deciding)}: take"
            " gymnasium.make_vec or PettingZoo"
        )
    return decision
