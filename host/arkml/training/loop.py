"""The frames of one training, and when they are enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from arkml.training.monitor import RunMonitor
from arkml.training.options import Goal
from arkml.training.pacer import Pacer
from arkml.training.results import TrainingEnd

_IDLE = 0.005  # seconds between two frames before there is a run
_NO_RUN = 90.0  # seconds after which a guest that starts none is given up
_EPISODES = 100  # episodes of a mean return


class TrainingLoop:
    """
    Steps a guest until the goal of its training is reached.

    Frames before there is a run do not count, and are not stepped as fast as can be: the learner
    starts sooner then. `ended` is why the loop ended, None while it runs.
    """

    def __init__(self, goal: Goal | None, fps: float | None, monitor: RunMonitor) -> None:
        self.frames = 0
        self.seconds = 0.0
        self.evaluated: tuple[float, ...] = ()
        self.pacer = None if fps is None else Pacer(fps)
        self.ended: TrainingEnd | None = None
        self._goal = goal
        self._monitor = monitor
        self._began = time.monotonic()
        self._run_began: float | None = None

    def run(
        self, step: Callable[[], None], evaluate: Callable[[], None] | None, every: int | None
    ) -> None:
        """Step until the goal is reached, or once without one; `evaluate` every N frames."""
        try:
            if self._goal is None:
                self._run_once(step)
            else:
                self._run_until(self._goal, step, evaluate, every)
        finally:
            self.seconds = time.monotonic() - self._began

    def keep_returns(self, returns: Sequence[float]) -> None:
        """Take the returns of evaluation episodes into the mean. Any thread may call it."""
        self.evaluated = (*self.evaluated, *returns)[-_EPISODES:]

    @property
    def mean_return(self) -> float | None:
        """Mean of the last 100 evaluation episodes, or else of training episodes."""
        evaluated = self.evaluated
        if evaluated:
            return sum(evaluated) / len(evaluated)
        return self._monitor.mean_return

    def _run_once(self, step: Callable[[], None]) -> None:
        step()
        self.frames = self._monitor.frames = 1
        self._monitor.raise_verdict()
        self.ended = "finished"

    def _run_until(
        self,
        goal: Goal,
        step: Callable[[], None],
        evaluate: Callable[[], None] | None,
        every: int | None,
    ) -> None:
        pacer, monitor = self.pacer, self._monitor
        if pacer is not None:
            pacer.begin()
        while (ended := self._end(goal)) is None:
            step()
            if pacer is not None:
                pacer.wait()
            if monitor.verdict is not None or not self._has_run():
                monitor.raise_verdict()
                continue
            self.frames += 1
            monitor.frames = self.frames
            if every and evaluate is not None and not self.frames % every:
                evaluate()
        self.ended = ended

    def _has_run(self) -> bool:
        """Return whether there is a run to train, and rest where there is none."""
        if self._run_began is None:
            if self._monitor.has_run:
                self._run_began = time.monotonic()
            elif self.pacer is None:
                time.sleep(_IDLE)
        return self._run_began is not None

    def _end(self, goal: Goal) -> TrainingEnd | None:
        """Return why the loop ends here, None if it does not."""
        if goal.frames is not None and self.frames >= goal.frames:
            return "frames"
        since = time.monotonic() - (self._run_began or self._began)
        if goal.minutes is not None and since >= 60 * goal.minutes:
            return "minutes"
        if self._run_began is None and since > _NO_RUN:
            return "finished"
        if self._monitor.is_stopped:
            return "stopped"
        mean = self.mean_return
        if goal.mean_return is not None and mean is not None and mean >= goal.mean_return:
            return "return"
        return None
