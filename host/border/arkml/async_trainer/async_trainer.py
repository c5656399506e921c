"""The trainer: pushes actors' items into a replay buffer, optimizes and publishes models."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from arkml.async_trainer.actor import shortest
from arkml.async_trainer.actor_manager import JOIN_SECONDS, ActorManager
from arkml.async_trainer.core.buffers import ReplayBufferBase
from arkml.async_trainer.core.config_files import YamlConfig, check_number, check_whole
from arkml.async_trainer.core.evaluator import Evaluator
from arkml.async_trainer.core.optimization import OptimizationLoop, check_warmup, is_due
from arkml.async_trainer.core.record import Record
from arkml.async_trainer.core.recorders import Recorder
from arkml.async_trainer.core.transition_batches import samples_of
from arkml.async_trainer.trainer_errors import BorderAsyncTrainerError
from arkml.base.learning_loop import take_turn
from arkml.base.loggers import SafeLogger
from arkml.base.sealed import Sealed

log = SafeLogger(__name__)

_WAIT_SECONDS = 0.1
_QUIET_SECONDS = 60.0
_MILLISECONDS = 1_000.0


@dataclass(frozen=True)
class AsyncTrainerConfig(YamlConfig):
    """
    Configuration of AsyncTrainer. Intervals are in optimization steps; 0 means never.

    Args:
        max_opts: Number of optimization steps to make.
        eval_interval: Steps between evaluations.
        flush_record_interval: Steps between flushes of the recorder.
        record_compute_cost_interval: Steps between records of speeds.
        record_agent_info_interval: Steps between records of the agent, such as losses.
        save_interval: Steps between saved models.
        sync_interval: Steps between models that are sent to the actors.
        warmup_period: Samples in the buffer at which optimization begins.
        updates_per_sample: Maximum number of optimization steps for each sample; actors that are
            ahead wait. None for no limit. Border's Rust version does not have it.

    Raises:
        UsageError: A value is invalid.

    Example:
        AsyncTrainerConfig(max_opts=50_000, eval_interval=5_000, updates_per_sample=1.0)

    """

    max_opts: int = 10
    eval_interval: int = 5_000
    flush_record_interval: int = 5_000
    record_compute_cost_interval: int = 5_000
    record_agent_info_interval: int = 5_000
    save_interval: int = 50_000
    sync_interval: int = 100
    warmup_period: int = 10_000
    updates_per_sample: float | None = None

    def __post_init__(self) -> None:
        for name in (
            "max_opts",
            "eval_interval",
            "flush_record_interval",
            "record_compute_cost_interval",
            "record_agent_info_interval",
            "save_interval",
            "sync_interval",
            "warmup_period",
        ):
            check_whole(name, getattr(self, name))
        if self.updates_per_sample is not None:
            check_number("updates_per_sample", self.updates_per_sample, 1e-6)


@dataclass(frozen=True, slots=True)
class AsyncTrainStat:
    """
    Speed of a training.

    Args:
        samples_per_sec: Samples per second.
        duration: Duration in seconds, including the warm-up.
        opt_per_sec: Optimization steps per second.

    """

    samples_per_sec: float
    duration: float
    opt_per_sec: float

    def fmt(self) -> str:
        """Return the statistics as a header and one line of comma-separated text."""
        rates = f"{shortest(self.samples_per_sec)}, {shortest(self.opt_per_sec)}"
        return f"samples/sec, opt_steps/sec, duration\n{rates}, {shortest(self.duration)}\n"


class AsyncTrainer(Sealed, OptimizationLoop):
    """
    Trains an agent with the samples of actors.

    Args:
        config: Configuration.
        agent: Agent that learns; it also has the methods of SyncModel.
        buffer: Replay buffer for the samples.
        actors: Manager of the actors, to be started before `train`.
        recorder: Recorder of scores, losses and speeds.
        evaluator: Evaluator of the agent.

    Raises:
        UsageError: The buffer is smaller than the warm-up.

    """

    def __init__(
        self,
        config: AsyncTrainerConfig,
        agent: Any,
        buffer: ReplayBufferBase,
        actors: ActorManager,
        recorder: Recorder,
        evaluator: Evaluator,
    ) -> None:
        check_warmup(config.warmup_period, buffer)
        super().__init__(config, agent, buffer, recorder, evaluator)
        self.samples_total: int = 0
        """Number of received samples."""
        self._config = config
        self._actors = actors
        self._items_total = 0
        self._is_draining = False
        self._drain_seconds = 0.0
        self._received_at = time.monotonic()
        self._interval_began = time.perf_counter()
        self._interval_samples = 0

    def train(self) -> AsyncTrainStat:
        """
        Train until `max_opts` optimization steps, then stop the actors.

        Samples that arrive while they stop are pushed, too.

        Raises:
            BorderAsyncTrainerError: The first model has optimization steps, or actors keep dying.
                Errors of agent, buffer, recorder and evaluator are raised, too.

        """
        began = time.perf_counter()
        self.agent.train()
        self._admit()
        self._send_first()
        self._interval_began = time.perf_counter()
        while self.opt_steps < self._config.max_opts:
            take_turn(self)
        self.sync()
        duration = time.perf_counter() - began
        samples = self.samples_total
        self._stop_actors()
        self.finish()
        return AsyncTrainStat(samples / duration, duration, self.opt_steps / duration)

    @property
    def is_ready(self) -> bool:
        """True if the warm-up is complete and the samples permit an optimization step."""
        if len(self.buffer) < max(1, self._config.warmup_period):
            return False
        ratio = self._config.updates_per_sample
        return ratio is None or self.opt_steps + 1 <= self.samples_total * ratio

    def drain(self) -> int:
        """Push the items that have arrived; wait for some if no optimization step is permitted."""
        seconds = 0.0 if self.is_ready else _WAIT_SECONDS
        self._admit()
        messages = self._actors.receive(seconds)
        return self._push(messages)

    @property
    def is_sync_due(self) -> bool:
        """True after each `sync_interval` optimization steps."""
        return is_due(self._config.sync_interval, self.opt_steps)

    def sync(self) -> None:
        """Send the model to the actors."""
        self._actors.publish(*self.agent.model_info())

    def costs(self) -> Record:
        """Return speeds, and milliseconds of each update and sample, since the last call."""
        now = time.perf_counter()
        seconds = max(now - self._interval_began, 1e-9)
        samples = self.samples_total - self._interval_samples
        updates, update_seconds = self.take_update_seconds()
        sample_time = _MILLISECONDS * self._drain_seconds / samples if samples else -1.0
        self._interval_began, self._interval_samples = now, self.samples_total
        self._drain_seconds = 0.0
        return Record(
            {
                "average_opt_time": _MILLISECONDS * update_seconds / updates if updates else -1.0,
                "average_sample_time": sample_time,
                "samples_total": self.samples_total,
                "opt_steps_per_sec": updates / seconds,
                "samples_per_sec": samples / seconds,
                "samples_per_opt_steps": samples / updates if updates else math.nan,
            }
        )

    def _send_first(self) -> None:
        n_opts, model_info = self.agent.model_info()
        if n_opts != 0:
            raise BorderAsyncTrainerError(
                f"the first model of {type(self.agent).__name__} has {n_opts} optimization steps,"
                " and training begins at 0: model_info() must count those of this training"
            )
        self._actors.publish(n_opts, model_info)

    def _admit(self) -> None:
        """
        Admit items for the warm-up, the updates so far and the steps to the next model.

        Each actor may have another `n_buffer` items, since the trainer does not see them before
        their message is full. The number of samples in an item is unknown until the first one
        arrives.
        """
        ratio = self._config.updates_per_sample
        if ratio is None:
            return
        waiting = len(self._actors) * self._actors.config.n_buffer
        samples = max(self._config.warmup_period, self.opt_steps / ratio)
        samples += max(1, self._config.sync_interval) / ratio
        if self.samples_total:
            waiting += math.ceil(samples * self._items_total / self.samples_total)
        self._actors.admit(waiting)

    def _push(self, messages: list[Any]) -> int:
        if not messages:
            self._warn_if_quiet()
            return 0
        began = time.perf_counter()
        before = self.samples_total
        push = self.buffer.push
        for message in messages:
            for item in message.pushed_items:
                push(item)
                self.samples_total += samples_of(item)
            self._items_total += len(message.pushed_items)
        self._received_at = time.monotonic()
        self._drain_seconds += time.perf_counter() - began
        return self.samples_total - before

    def _warn_if_quiet(self) -> None:
        now = time.monotonic()
        if now - self._received_at > _QUIET_SECONDS and not self.is_ready:
            log.warning("no actor has sent a sample for %.0f seconds", now - self._received_at)
            self._received_at = now

    def _stop_actors(self) -> None:
        self._actors.stop()
        until = time.monotonic() + JOIN_SECONDS
        while self._actors.is_running and time.monotonic() < until:
            self._push(self._actors.receive(_WAIT_SECONDS))
