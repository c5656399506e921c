"""The optimizing part of a training loop: optimize, evaluate, save and record."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from typing import Any, Protocol

from arkml.async_trainer.core.buffers import ReplayBufferBase
from arkml.async_trainer.core.evaluator import Evaluator
from arkml.async_trainer.core.record import Record
from arkml.async_trainer.core.recorders import Recorder
from arkml.base.learning_loop import LearningLoop
from arkml.base.loggers import SafeLogger
from arkml.errors import UsageError

log = SafeLogger(__name__)

BEST = "best"
"""Name of the saved model with the highest score so far."""


class Intervals(Protocol):
    """Intervals in optimization steps; 0 means never."""

    @property
    def eval_interval(self) -> int:
        """Steps between evaluations."""

    @property
    def flush_record_interval(self) -> int:
        """Steps between flushes of the recorder, after the first step."""

    @property
    def record_compute_cost_interval(self) -> int:
        """Steps between records of speeds."""

    @property
    def record_agent_info_interval(self) -> int:
        """Steps between records of the agent, such as losses."""

    @property
    def save_interval(self) -> int:
        """Steps between saved models."""


def is_due(interval: int, step: int) -> bool:
    """Return whether an interval ends at a step."""
    return interval > 0 and step % interval == 0


def check_warmup(warmup_period: int, buffer: ReplayBufferBase) -> None:
    """Raise UsageError if a buffer with a known `capacity` is smaller than the warm-up."""
    capacity = getattr(buffer, "capacity", None)
    if capacity is not None and warmup_period > capacity:
        raise UsageError(
            f"warmup_period is {warmup_period}, and the replay buffer holds {capacity} samples at"
            " most: training would never begin"
        )


class OptimizationLoop(LearningLoop):
    """A loop with one optimization step a turn, and with its evaluation, saving and recording."""

    def __init__(
        self,
        intervals: Intervals,
        agent: Any,
        buffer: ReplayBufferBase,
        recorder: Recorder,
        evaluator: Evaluator,
    ) -> None:
        self.agent = agent
        self.buffer = buffer
        self.opt_steps: int = 0
        """Number of optimization steps so far."""
        self._intervals = intervals
        self._recorder = recorder
        self._evaluator = evaluator
        self._best = -math.inf
        self._pending = Record()
        self._recorded_at = 0
        self._is_stored = False
        self._timed_steps = 0
        self._timed_seconds = 0.0

    @abstractmethod
    def costs(self) -> Record:
        """Return the values to record at each `record_compute_cost_interval`, such as speeds."""

    def optimize(self) -> int:
        """Make an optimization step; evaluate and save the agent if due."""
        began = time.perf_counter()
        if is_due(self._intervals.record_agent_info_interval, self.opt_steps + 1):
            self._pending.merge_inplace(self.agent.opt_with_record(self.buffer))
        else:
            self.agent.opt(self.buffer)
        self._timed_seconds += time.perf_counter() - began
        self._timed_steps += 1
        self.opt_steps += 1
        if is_due(self._intervals.eval_interval, self.opt_steps):
            self._evaluate()
        if is_due(self._intervals.save_interval, self.opt_steps):
            self._recorder.save_model(str(self.opt_steps), self.agent)
        return 1

    @property
    def is_record_due(self) -> bool:
        """True after an optimization step."""
        return self.opt_steps > self._recorded_at

    def record(self) -> None:
        """Store the values of this turn, and flush the recorder if due."""
        self._recorded_at = self.opt_steps
        if is_due(self._intervals.record_compute_cost_interval, self.opt_steps):
            self._pending.merge_inplace(self.costs())
        self.store(self._pending)
        self._pending = Record()
        if is_due(self._intervals.flush_record_interval, self.opt_steps - 1):
            self._flush()

    def store(self, record: Record) -> None:
        """Store a record unless it is empty."""
        if not record.is_empty:
            self._recorder.store(record)
            self._is_stored = True

    def finish(self) -> None:
        """Flush stored values unless records are never flushed."""
        if self._is_stored and self._intervals.flush_record_interval:
            self._flush()

    def take_update_seconds(self) -> tuple[int, float]:
        """Return the number and total seconds of the optimization steps since the last call."""
        taken = self._timed_steps, self._timed_seconds
        self._timed_steps, self._timed_seconds = 0, 0.0
        return taken

    def _flush(self) -> None:
        self._recorder.flush(self.opt_steps)
        self._is_stored = False

    def _evaluate(self) -> None:
        self.agent.eval()
        try:
            score, record = self._evaluator.evaluate(self.agent)
        finally:
            self.agent.train()
        log.info("score %g after %d optimization steps", score, self.opt_steps)
        self._pending.merge_inplace(record)
        if score > self._best:
            self._best = score
            self._recorder.save_model(BEST, self.agent)
