"""The loop that steps the frames of a training until its goal is reached."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from arkml.errors import GuestCancelled
from arkml.training.monitor import RunMonitor
from arkml.training.pacer import Pacer
from arkml.training.rating_rules import LEAST_EPISODES
from arkml.training.results import TrainingEnd
from arkml.training.training_options import Goal

_IDLE = 0.005  # seconds between two frames before there is a run
_NO_RUN = 90.0  # seconds after which a guest that starts none is given up, outside of a queue
_MORE_RUNS = 30.0  # seconds in which others may begin, before frames count without them
_ASKS_AGAIN = 5.0  # seconds that a guest which was refused a run has at least to ask for another
_LOOK = 0.1  # seconds between two looks at a step that may have to be ended
_PATIENCE = 1.0  # seconds that a step gets to end by itself


class FrameRatings(Protocol):
    """
    Evaluations that rate policies while the frames of a training are stepped.

    If `decides` is true, `is_reached` says whether a version has reached the mean return that ends
    the training; else the mean return of training episodes decides.
    """

    is_reached: bool

    @property
    def decides(self) -> bool: ...

    def after_frame(self, frames: int) -> None:
        """Note that this number of frames has been stepped."""


class TrainingLoop:
    """
    Steps a guest until the goal of its training is reached.

    Without a goal, or if `is_once`, the loop makes one step. Frames before there is a run, before
    the first others that the guest has asked for, or after its session has failed, do not count,
    and follow each other with pauses, so that the learner starts sooner. A step that still waits a
    second after the end of the training, for example for a hive that is gone, is ended by `cancel`,
    which lets it raise GuestCancelled. `ended` is the reason of the end, such as "frames", None
    while the loop runs.
    """

    def __init__(
        self,
        goal: Goal,
        fps: float | None,
        monitor: RunMonitor,
        *,
        is_once: bool,
        cancel: Callable[[], None],
    ) -> None:
        self.frames = 0
        self.seconds = 0.0
        self.pacer = None if fps is None else Pacer(fps)
        self.ended: TrainingEnd | None = None
        self._goal = goal
        self._monitor = monitor
        self._is_once = is_once or goal.is_open
        self._ratings: FrameRatings | None = None
        self._cancel = cancel
        self._steps = 0
        self._over = threading.Event()
        self._began = time.monotonic()
        self._missed = self._began  # the time from which on the guest could have had a run
        self._run_began: float | None = None
        self._looked = self._began  # the last time that the monitor was asked for refusals
        self._was_refused = False

    def run(
        self,
        begin: Callable[[], None],
        step: Callable[[], None],
        ratings: FrameRatings | None = None,
    ) -> None:
        """
        Call `begin`, then `step` until the goal is reached; `ratings` gets each number of frames.
        """
        self._ratings = ratings
        watch = threading.Thread(target=self._watch, name="arkml-training-end", daemon=True)
        watch.start()
        try:
            if (ended := self._take(begin)) is not None:
                self.ended = ended
            elif self._is_once:
                self._run_once(step)
            else:
                self._run_until(step)
        finally:
            self._over.set()
            watch.join()
            self.seconds = time.monotonic() - self._began

    def is_due(self) -> bool:
        """Return whether the training must end now. Any thread may call it."""
        return self._monitor.verdict is not None or self._end() is not None

    def _run_once(self, step: Callable[[], None]) -> None:
        cut = self._end() or self._take(step)
        self._monitor.raise_verdict()
        if cut is None:
            self.frames = self._monitor.frames = 1
        self.ended = cut or "finished"

    def _run_until(self, step: Callable[[], None]) -> None:
        pacer, monitor, ratings = self.pacer, self._monitor, self._ratings
        if pacer is not None:
            pacer.begin()
        while (ended := self._end()) is None:
            if (ended := self._take(step)) is not None:
                break
            if pacer is not None:
                pacer.wait()
            if monitor.verdict is not None or not self._has_run():
                monitor.raise_verdict()
                if self._is_refused():
                    ended = "finished"
                    break
                continue
            self.frames += 1
            monitor.frames = self.frames
            if ratings is not None:
                ratings.after_frame(self.frames)
        self.ended = ended

    def _take(self, step: Callable[[], None]) -> TrainingEnd | None:
        """Take a step. Returns the reason of the training's end if that has ended the step."""
        self._steps += 1
        try:
            step()
        except GuestCancelled:
            if not self.is_due():
                raise
            self._monitor.raise_verdict()
            return self._end()
        return None

    def _watch(self) -> None:
        """Cancel a step that waits although the training has to end, until it ends."""
        seen, since = -1, 0.0
        while not self._over.wait(_LOOK):
            self._note_run()
            if not self.is_due():
                seen = -1
            elif self._steps != seen:
                seen, since = self._steps, time.monotonic()
            elif time.monotonic() - since >= _PATIENCE:
                self._cancel()

    def _has_run(self) -> bool:
        """Return whether a run takes rows; if none does, pause for a moment."""
        self._note_run()
        has_run = self._run_began is not None and self._monitor.has_session()
        if has_run and not self.frames and self._monitor.awaits_runs:  # of several, which come
            assert self._run_began is not None
            has_run = time.monotonic() - self._run_began >= _MORE_RUNS
        if not has_run and self.pacer is None:
            time.sleep(_IDLE)
        return has_run

    def _is_refused(self) -> bool:
        """Return whether the guest was refused a run, and has none after 5 to 10 seconds more."""
        now = time.monotonic()
        if self._run_began is not None or now - self._looked < _ASKS_AGAIN:
            return False
        self._looked = now
        was_refused, self._was_refused = self._was_refused, self._monitor.is_refused()
        return was_refused and self._was_refused

    def _note_run(self) -> None:
        if self._run_began is None and self._monitor.has_run:
            self._run_began = time.monotonic()
        elif self._monitor.is_pending:
            self._missed = time.monotonic()

    def _end(self) -> TrainingEnd | None:
        """Return the reason to end the loop now, such as "minutes", or None."""
        goal = self._goal
        if goal.frames is not None and self.frames >= goal.frames:
            return "frames"
        now = time.monotonic()
        if goal.minutes is not None and now - (self._run_began or self._began) >= 60 * goal.minutes:
            return "minutes"
        if self._run_began is None and now - self._missed > _NO_RUN and not self._is_once:
            return "finished"
        if self._monitor.is_stopped:
            return "stopped"
        if goal.mean_return is not None and self._is_reached(goal.mean_return):
            return "return"
        return None

    def _is_reached(self, wanted: float) -> bool:
        ratings, mean = self._ratings, self._monitor.mean_return
        if ratings is not None and ratings.decides:
            return ratings.is_reached
        return self._monitor.episodes >= LEAST_EPISODES and mean is not None and mean >= wanted
