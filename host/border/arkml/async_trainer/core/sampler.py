"""The sampler: lets an agent act in an environment, and pushes items into a buffer."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from arkml.async_trainer.core.agent import Policy
from arkml.async_trainer.core.buffers import ExperienceBufferBase, StepProcessor
from arkml.async_trainer.core.env import Env, Step
from arkml.async_trainer.core.record import Record
from arkml.async_trainer.core.transition_batches import samples_of
from arkml.base.sealed import Sealed
from arkml.errors import UsageError


class Sampler(Sealed):
    """Steps one or n parallel environments, and pushes items into a buffer."""

    def __init__(self, env: Env[Any, Any], step_processor: StepProcessor) -> None:
        self.samples: int = 0
        """Number of pushed samples."""
        self._env = env
        self._step_processor = step_processor
        self._prev_obs: Any = None
        self._shape: tuple[int, ...] | None = None
        self._began = time.perf_counter()
        self._counted = 0

    def sample_and_push(self, agent: Policy, buffer: ExperienceBufferBase) -> Record:
        """
        Act once and push the step's item; return the record of the environment.

        Raises UsageError, before pushing, if the environment changes its shapes or a reward is not
        finite.
        """
        if self._prev_obs is None:
            self._begin()
        act = agent.sample(self._prev_obs)
        step, record = self._env.step_with_reset(act)
        is_changed = self._check(step)
        item = self._step_processor.process(step)
        buffer.push(item)
        self.samples += samples_of(item)
        if is_changed:
            # Where no episode ended, `init_obs` has the same rows as `obs`.
            self._prev_obs = step.init_obs
            self._step_processor.reset(step.init_obs)
        else:
            self._prev_obs = step.obs
        return record

    def take_fps(self) -> float:
        """Return the samples per second since the last call."""
        now = time.perf_counter()
        fps = (self.samples - self._counted) / max(now - self._began, 1e-9)
        self._began, self._counted = now, self.samples
        return fps

    def _begin(self) -> None:
        obs = self._env.reset()
        self._step_processor.reset(obs)
        self._shape = _shape_of(obs)
        self._prev_obs = obs

    def _check(self, step: Step[Any, Any]) -> bool:
        """Return whether `init_obs` is the next observation. Raises UsageError."""
        shape = _shape_of(step.obs)
        if shape != self._shape:
            raise self._wrong("an observation", shape, self._shape)
        reward = step.reward
        n = shape[:1]
        for name, values in (
            ("rewards", reward),
            ("is_terminated", step.is_terminated),
            ("is_truncated", step.is_truncated),
        ):
            if not isinstance(values, np.ndarray) or values.shape != n:
                found = values.shape if isinstance(values, np.ndarray) else values
                raise self._wrong(name, found, n)
        # Checking a single number is ten times faster than checking an array.
        if not (math.isfinite(reward.item()) if n == (1,) else np.isfinite(reward).all()):
            raise UsageError(
                f"the environment {type(self._env).__name__} returned the reward {reward!r}, which"
                " is not finite"
            )
        if step.continues is not None:
            shape = self._shape = (len(step.continues), *shape[1:])
        elif not step.is_done:
            return False
        init_shape = None if step.init_obs is None else _shape_of(step.init_obs)
        if init_shape != shape:
            raise self._wrong("init_obs after an episode's end", init_shape, shape)
        return True

    def _wrong(self, what: str, found: object, expected: object) -> UsageError:
        return UsageError(
            f"the environment {type(self._env).__name__} returned {what} of shape {found},"
            f" expected an array of shape {expected}"
        )


def _shape_of(obs: Any) -> tuple[int, ...]:
    """Return the shape of an observation, or (n,) if it has no shape."""
    return obs.shape if isinstance(obs, np.ndarray) else (len(obs),)
