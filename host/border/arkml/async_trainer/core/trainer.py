"""The synchronous trainer, which samples and optimizes alternately in one thread."""

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
"""An interval that never ends: the largest 64-bit unsigned integer, as in Rust's border."""


@dataclass(frozen=True)
class TrainerConfig(YamlConfig):
    """
    Configuration of Trainer. Intervals are in optimization steps unless noted; 0 means never.

    Args:
        max_opts: Number of optimization steps to make.
        eval_interval: Steps between evaluations.
        opt_interval: Environment steps between optimization steps; ignored by `train_offline`.
        flush_record_interval: Steps between flushes of the recorder.
        record_compute_cost_interval: Steps between records of speeds.
        record_agent_info_interval: Steps between records of the agent, such as losses.
        save_interval: Steps between saved models.
        warmup_period: Environment steps before the first optimization step; ignored by
            `train_offline`.

    Raises:
        UsageError: A value is invalid.

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
    """Trains agents in the caller's thread."""

    def __init__(self, config: TrainerConfig) -> None:
        self._config = config

    @classmethod
    def build(cls, config: TrainerConfig) -> Trainer:
        """Build a trainer."""
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

        Args:
            env: Environment to sample in.
            step_processor: Makes items from the environment's steps.
            agent: Agent that acts and learns.
            buffer: Replay buffer for the items.
            recorder: Recorder of scores, losses and speeds.
            evaluator: Evaluator of the agent.

        Raises:
            UsageError: The buffer is smaller than the warm-up, or a step is unusable. Errors of the
                arguments are raised, too.

        """
        check_warmup(self._config.warmup_period, buffer)
        sampler = Sampler(env, step_processor)
        self._run(_OnlineLoop(self._config, agent, buffer, recorder, evaluator, sampler))

    def train_offline(
        self, agent: Agent, buffer: ReplayBufferBase, recorder: Recorder, evaluator: Evaluator
    ) -> None:
        """
        Optimize with the existing samples of a buffer until `max_opts` optimization steps.

        Args:
            agent: Agent that learns.
            buffer: Replay buffer with the samples.
            recorder: Recorder of scores, losses and speeds.
            evaluator: Evaluator of the agent.

        """
        self._run(_OfflineLoop(self._config, agent, buffer, recorder, evaluator))

    def _run(self, loop: _OfflineLoop) -> None:
        loop.agent.train()
        while loop.opt_steps < self._config.max_opts:
            take_turn(loop)
        loop.finish()


class _OfflineLoop(OptimizationLoop):
    """One optimization step a turn."""

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
        """Do nothing: the same agent learns and acts."""

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
    """One environment step a turn, and an optimization step after each `opt_interval`."""

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
        """Return the mean milliseconds of the last environment steps, -1 without any."""
        steps, seconds = self._env_steps - self._timed_env_steps, self._sample_seconds
        self._timed_env_steps, self._sample_seconds = self._env_steps, 0.0
        return _MILLISECONDS * seconds / steps if steps else -1.0

    def costs(self) -> Record:
        self.fps = self._sampler.take_fps()
        return super().costs()
