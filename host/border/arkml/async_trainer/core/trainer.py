"""The synchronous trainer: samples and optimizes in turns, in one thread."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from arkml.async_trainer.core.agent import Agent
from arkml.async_trainer.core.buffers import ReplayBufferBase, StepProcessor
from arkml.async_trainer.core.config_files import YamlConfig, check_whole
from arkml.async_trainer.core.env import Env
from arkml.async_trainer.core.evaluator import Evaluator
from arkml.async_trainer.core.optimization import OptimizationLoop, check_warmup
from arkml.async_trainer.core.record import Record
from arkml.async_trainer.core.recorders import Recorder
from arkml.async_trainer.core.sampler import Sampler
from arkml.base.learning_loop import take_turn
from arkml.base.sealed import Sealed

_MILLISECONDS = 1_000.0

MAX = 2**64 - 1
"""An interval that no training reaches: the largest number of the seed's."""


@dataclass(frozen=True)
class TrainerConfig(YamlConfig):
    """
    Configuration of Trainer.

    Intervals are in optimization steps, of which 0 is never. `opt_interval` is in environment
    steps, of which the first `warmup_period` have no optimization step; `train_offline` ignores
    both.
    """

    max_opts: int = 0
    eval_interval: int = 0
    opt_interval: int = 1
    flush_record_interval: int = MAX
    record_compute_cost_interval: int = MAX
    record_agent_info_interval: int = MAX
    save_interval: int = MAX
    warmup_period: int = 0

    def __post_init__(self) -> None:
        for name in ("max_opts", "eval_interval", "flush_record_interval", "warmup_period"):
            check_whole(name, getattr(self, name))
        for name in ("record_compute_cost_interval", "record_agent_info_interval", "save_interval"):
            check_whole(name, getattr(self, name))
        check_whole("opt_interval", self.opt_interval, 1)


class Trainer(Sealed):
    """Trains agents in the thread of the caller."""

    def __init__(self, config: TrainerConfig) -> None:
        self._config = config

    @classmethod
    def build(cls, config: TrainerConfig) -> Trainer:
        """Return a trainer."""
        return cls(config)

    def train(
        self,
        env: Env[Any, Any],
        step_processor: StepProcessor,
        agent: Agent,
        buffer: ReplayBufferBase,
        recorder: Recorder,
        evaluator: Evaluator,
    ) -> None:
        """
        Sample and optimize until `max_opts` optimization steps.

        Raises UsageError if the buffer cannot hold the samples of the warm-up, or for steps that
        cannot be used, and what the arguments raise.
        """
        check_warmup(self._config.warmup_period, buffer)
        sampler = Sampler(env, step_processor)
        self._run(_OnlineLoop(self._config, agent, buffer, recorder, evaluator, sampler))

    def train_offline(
        self, agent: Agent, buffer: ReplayBufferBase, recorder: Recorder, evaluator: Evaluator
    ) -> None:
        """Optimize with the samples that the buffer has until `max_opts` optimization steps."""
        self._run(_OfflineLoop(self._config, agent, buffer, recorder, evaluator))

    def _run(self, loop: _OfflineLoop) -> None:
        loop.agent.train()
        while loop.opt_steps < self._config.max_opts:
            take_turn(loop)
        loop.finish()


class _OfflineLoop(OptimizationLoop):
    """An optimization step each turn."""

    fps = 0.0

    def drain(self) -> int:
        return 0

    @property
    def is_ready(self) -> bool:
        return True

    @property
    def is_sync_due(self) -> bool:
        return False

    def sync(self) -> None:
        """Send nothing: the agent that learns is the one that acts."""

    def costs(self) -> Record:
        steps, seconds = self.take_update_seconds()
        return Record(
            {
                "average_opt_time": _MILLISECONDS * seconds / steps if steps else -1.0,
                "average_sample_time": self.take_sample_milliseconds(),
                "fps": self.fps,
                "opt_steps_per_sec": steps / max(seconds, 1e-9),
            }
        )

    def take_sample_milliseconds(self) -> float:
        """Return -1: no environment is stepped."""
        return -1.0


class _OnlineLoop(_OfflineLoop):
    """An environment step each turn, and an optimization step after each `opt_interval`."""

    def __init__(
        self,
        config: TrainerConfig,
        agent: Agent,
        buffer: ReplayBufferBase,
        recorder: Recorder,
        evaluator: Evaluator,
        sampler: Sampler,
    ) -> None:
        super().__init__(config, agent, buffer, recorder, evaluator)
        self._config = config
        self._sampler = sampler
        self._env_steps = self._timed_env_steps = 0
        self._sample_seconds = 0.0

    def drain(self) -> int:
        before, began = self._sampler.samples, time.perf_counter()
        self.store(self._sampler.sample_and_push(self.agent, self.buffer))
        self._sample_seconds += time.perf_counter() - began
        self._env_steps += 1
        return self._sampler.samples - before

    @property
    def is_ready(self) -> bool:
        is_warm = self._env_steps >= self._config.warmup_period
        return is_warm and self._env_steps % self._config.opt_interval == 0

    def take_sample_milliseconds(self) -> float:
        """Return the milliseconds of an environment step since the last call, -1 for none."""
        steps, seconds = self._env_steps - self._timed_env_steps, self._sample_seconds
        self._timed_env_steps, self._sample_seconds = self._env_steps, 0.0
        return _MILLISECONDS * seconds / steps if steps else -1.0

    def costs(self) -> Record:
        self.fps = self._sampler.take_fps()
        return super().costs()
