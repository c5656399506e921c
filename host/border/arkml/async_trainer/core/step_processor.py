"""The step processor that makes one-step transitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from arkml.async_trainer.core.buffers import StepProcessor
from arkml.async_trainer.core.config_files import YamlConfig
from arkml.async_trainer.core.transition_batches import (
    ActBatch,
    GenericTransitionBatch,
    ObsBatch,
    batch_of,
)
from arkml.errors import UsageError

EnvT = TypeVar("EnvT")


@dataclass(frozen=True)
class SimpleStepProcessorConfig(YamlConfig):
    """Configuration of SimpleStepProcessor; it has no fields."""


class SimpleStepProcessor(StepProcessor, Generic[EnvT, ObsBatch, ActBatch]):
    """
    Makes one-step transitions, n of them for n parallel environments.

    The type parameters are for readers and type checkers: observations and actions are arrays, or
    have a method `into_batch`.
    """

    config_class = SimpleStepProcessorConfig

    def __init__(self) -> None:
        self._prev_obs: Any = None

    @classmethod
    def build(
        cls,
        config: SimpleStepProcessorConfig,  # noqa: ARG003  there is nothing to choose
    ) -> SimpleStepProcessor[EnvT, ObsBatch, ActBatch]:
        """Build a processor; call `reset` before its first step."""
        return cls()

    def reset(self, init_obs: Any) -> None:
        """Begin with the first observation of an episode, or of n parallel ones."""
        self._prev_obs = batch_of(init_obs)

    def process(self, step: Any) -> GenericTransitionBatch[ObsBatch, ActBatch]:
        """Return the transition of a step. Raises UsageError before the first `reset`."""
        if self._prev_obs is None:
            raise UsageError(
                "a step processor needs the first observation of an episode: call reset before"
                " process"
            )
        next_obs = batch_of(step.obs)
        item = GenericTransitionBatch(
            self._prev_obs,
            batch_of(step.act),
            next_obs,
            np.asarray(step.reward, np.float32),
            np.asarray(step.is_terminated, np.int8),
            np.asarray(step.is_truncated, np.int8),
        )
        self._prev_obs = next_obs
        return item


SimpleStepProcessorConfig.builds = SimpleStepProcessor
