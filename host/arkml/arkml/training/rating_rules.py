"""The rules of evaluations: how many episodes rate a version, and when the next one is rated."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

GOAL_EPISODES = 100
"""Episodes of one version whose mean return ends a training."""

LEAST_EPISODES = 20
"""Episodes that end a training at least: of evaluations with missing ones, and of training."""

FIRST_AFTER = 5.0
"""Seconds of learning before the first evaluation, if no return is waited for."""

_FAILURES = 3
_SHARE = 0.01  # of the time of learning: while that doubles there are 70 ratings at most


class _Pause(NamedTuple):
    """A pause after a rating: `times` its length, and so many `seconds` at least."""

    times: float
    seconds: float


_PAUSE = _Pause(4.0, 2.0)  # evaluations take a fifth of a processor
_PAUSE_GOAL = _Pause(1.0, 0.25)  # half of one


class RatingRule(NamedTuple):
    """
    The episodes that rate a version, such as 10, and the mean return that ends the training.

    `goal` is None if no mean return ends it.
    """

    episodes: int
    goal: float | None

    def lacking(self, returns: Sequence[float], best: float | None) -> int:
        """
        Return how many more episodes a version plays after those with `returns`.

        One that seems to be better than the `best` plays twice as many, since the highest of
        several means is biased upwards; one that seems to be at the goal plays a hundred.
        """
        mean, wanted = float(np.mean(returns)) if returns else -np.inf, 0
        if best is not None and mean > best:
            wanted = 2 * self.episodes
        if returns and self.goal is not None and mean >= self.goal:
            wanted = max(wanted, self.episodes, GOAL_EPISODES)
        return max(0, wanted - len(returns))

    def is_reached(self, returns: Sequence[float]) -> bool:
        """Return whether a version that has played all its episodes is at the goal."""
        if self.goal is None or len(returns) < LEAST_EPISODES:
            return False
        return float(np.mean(returns)) >= self.goal


class RatingPace:
    """
    When the newest version is rated, if the user gives no number of frames.

    A rating is followed by a pause of four times its length, and of its length only if a return
    ends the training (`has_goal`), which waits for the ratings then; and of a hundredth of the time
    of learning, so that long trainings have hundreds of ratings and not ten thousands. The first
    rating is of a version after the first one that there was, which has learned nothing: at once
    with a goal, else five seconds later. Nothing is rated any more (`is_over`) after a failure
    before the first rating, after three in a row, or after `give_up`.

    Attributes:
        is_over: True once nothing is rated any more.
        version: The version that was rated last, or is rated now; None before the first.

    """

    def __init__(self, *, has_goal: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.is_over = False
        self.version: int | None = None
        self._pause = _PAUSE_GOAL if has_goal else _PAUSE
        self._first_after = 0.0 if has_goal else FIRST_AFTER
        self._clock = clock
        self._unlearned: int | None = None
        self._learning_since = 0.0
        self._due_at: float | None = None
        self._began = 0.0
        self._is_rating = False
        self._has_rated = False
        self._failures = 0

    @property
    def is_pausing(self) -> bool:
        """True while no version is due, whichever it is."""
        if self.is_over or self._is_rating:
            return True
        return self._due_at is not None and self._clock() < self._due_at

    def is_due(self, version: int) -> bool:
        """Return whether to rate the newest version now."""
        if self._unlearned is None:
            self._unlearned = version
        if self.is_over or self._is_rating or version in (self._unlearned, self.version):
            return False
        if self._due_at is None:
            self._learning_since = self._clock()
            self._due_at = self._learning_since + self._first_after
        return self._clock() >= self._due_at

    def begin(self, version: int) -> None:
        """Note that a version is rated from now on."""
        self.version, self._began, self._is_rating = version, self._clock(), True

    def end(self, *, is_rated: bool) -> None:
        """Note the end of the rating, which has failed unless the version `is_rated`."""
        now = self._clock()
        self._failures = 0 if is_rated else self._failures + 1
        self._has_rated = self._has_rated or is_rated
        self.is_over = self.is_over or (
            not is_rated and (not self._has_rated or self._failures >= _FAILURES)
        )
        self._due_at = now + max(
            self._pause.times * (now - self._began),
            self._pause.seconds,
            _SHARE * (now - self._learning_since),
        )
        self._is_rating = False

    def give_up(self) -> None:
        """Rate nothing any more."""
        self.is_over = True
