"""A guest with one agent as a Gymnasium environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

import gymnasium

from arkml.arrays import Marks
from arkml.base.sealed import Sealed
from arkml.base.short_reprs import cut_repr
from arkml.batches import Floats
from arkml.envs import spaces
from arkml.envs.core.env_options import GuestEnvOptions
from arkml.envs.core.guest_env import GuestEnv
from arkml.envs.drawing import Bars, Figure, RenderMode
from arkml.envs.made_spec import MadeSpec
from arkml.envs.one_agent import OneAgent
from arkml.envs.pictures import picture_of
from arkml.envs.remade import Remade
from arkml.errors import UsageError
from arkml.host import Source

_WHO = "a Gymnasium environment"


@dataclass(slots=True)
class _Latest:
    """The observation, float32, [num_features], action and reward of the last step, to draw."""

    seen: Floats | None = None
    action: Floats | None = None
    reward: float = 0.0


class GuestGymEnv(Sealed, Remade, MadeSpec, gymnasium.Env[Any, Any]):
    """
    A Gymnasium environment of a guest with one agent.

    Observations are float32, [num_features], and actions float32, [num_actions], within [-1, 1],
    unless a spec declares others: see `spaces`. Masked choices are 0 in `info["action_mask"]`.

    At the end of an episode, `reset` without a seed continues with the next episode of the same
    instance; otherwise it makes a new instance. If the guest has finished or failed, the episode is
    truncated, and `info` has "guest_done" or "error".

    Args:
        module: The path or the bytes of a guest.
        render_mode: "ansi" for a line of text, "rgb_array" for a picture, None for neither.
        options: Options of the guest; see `GuestEnv`.

    Raises:
        UsageError: An option has a wrong value, or the guest has more than one agent.

    Example:
        env = gymnasium.make("arkml.envs.gym:arkml/Guest-v0", module="walker.wasm")
        observation, info = env.reset(seed=1)
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())

    """

    metadata: dict[str, Any] = {  # noqa: RUF012  as gymnasium.Env declares it
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 60,
    }

    def __init__(
        self,
        module: Source,
        *,
        render_mode: RenderMode = None,
        **options: Unpack[GuestEnvOptions],
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UsageError(
                f"render_mode is {cut_repr(render_mode)}: it takes None, 'ansi', 'rgb_array'"
            )
        self.render_mode = render_mode
        self._settings = {"render_mode": render_mode}
        self._agent = OneAgent(module, _WHO, **options)
        self._spec = self._agent.behavior.spec
        self.observation_space = spaces.observation_space(self._spec)
        self.action_space = spaces.action_space(self._spec)
        self._picture = picture_of(self._spec) or Bars(self._spec)
        self.metadata = {**self.metadata, "seedable": self._agent.env.seedable}
        self._latest = _Latest()

    @property
    def guest_env(self) -> GuestEnv:
        """The underlying environment of the guest."""
        return self._agent.env

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Return the first observation of an episode, and its info. Raises GuestError."""
        super().reset(seed=seed, options=options)
        seen, info = self._agent.reset(seed)
        self._latest = _Latest(seen)
        return spaces.observation_of(self._spec, seen), {**info, **self._allowed()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """
        Step the agent.

        Args:
            action: An action of `action_space`.

        Returns:
            Observation, reward, terminated, truncated and info.

        Raises:
            InvalidActions: The action is not in the space; the guest was not stepped.
            UsageError: The environment is closed.
            ResetNeeded: The episode has ended, or none has begun (an error of Gymnasium).

        """
        if self._agent.number is None:
            self._agent.require_open()
            raise gymnasium.error.ResetNeeded(
                "reset the environment before its first step"
                if self._latest.seen is None
                else "the episode has ended: reset the environment"
            )
        latest = self._latest
        latest.action = spaces.taken(self._spec, action, None, _WHO)
        seen, reward, terminated, truncated, info = self._agent.step(latest.action)
        latest.seen, latest.reward = seen, reward
        if self._agent.masks:
            info.update(self._allowed())
        return spaces.observation_of(self._spec, seen), reward, terminated, truncated, info

    def action_masks(self) -> Marks:
        """
        Return which choices the agent may take now, bool, [choices of all branches].

        Raises UsageError for an agent without branches, and before the first reset.
        """
        spaces.require_branches(self._spec, _WHO)
        if self._latest.seen is None:
            raise UsageError("reset the environment before its masks are asked for")
        return spaces.choices_allowed(self._allowed()["action_mask"])

    def render(self) -> Any:
        """
        Return a line with the last observation and reward ("ansi"), or a picture ("rgb_array").

        The picture is uint8, [256, 256, 3]: the agent's position in a plane, if the spec declares
        positions; else its images and grids, if it has any; else bars of its features and of its
        last action. Returns None without a render_mode.
        """
        latest = self._latest
        if self.render_mode is None or latest.seen is None:
            return None
        if self.render_mode == "rgb_array":
            return self._picture.draw([Figure(latest.seen, latest.action, 0)])
        features = "  ".join(f"{value:9.4f}" for value in latest.seen)
        return f"observation {features}   reward {latest.reward:9.4f}\n"

    def close(self) -> None:
        """Close the environment."""
        self._agent.close()

    def _allowed(self) -> dict[str, Any]:
        return spaces.allowed(self._spec, self._agent.masks)
