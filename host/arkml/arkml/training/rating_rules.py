"""
Rules of evaluations: how many episodes a policy version plays, and when the next is evaluated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
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
    The number of episodes that rate a version, such as 10, and the mean return to be reached.

    `goal` is None if no mean return ends the training.
    """

    episodes: int
    goal: float | None

    def lacking(self, returns: Sequence[float], best: float | None) -> int:
        """
        Return how many more episodes a version must play, given the `returns` of past ones.

        A version that seems to be better than the `best` mean return plays twice as many episodes,
        since the highest of several means is biased upwards. A version that seems to have reached
        the goal plays a hundred.
        """
        mean, wanted = float(np.mean(returns)) if returns else -np.inf, 0
        if best is not None and mean > best:
            wanted = 2 * self.episodes
        if returns and self.goal is not None and mean >= self.goal:
            wanted = max(wanted, self.episodes, GOAL_EPISODES)
        return max(0, wanted - len(returns))

    def is_reached(self, returns: Sequence[float]) -> bool:
        """Return whether a version that has played all its episodes has reached the goal."""
        if self.goal is None or len(returns) < LEAST_EPISODES:
            return False
        return float(np.mean(returns)) >= self.goal


def is_of_untrained(versions: Iterable[int], updates: int) -> bool:
    """Return whether all of these ratings are of version 1, though a learner has made updates."""
    return updates > 0 and set(versions) == {1}


class RatingPace:
    """
    The schedule of evaluations ("ratings") where the user gives no number of frames.

    The pause after a rating is four times as long as the rating, or only as long if the training
    waits for a mean return (`has_goal`). It is at least a hundredth of the training's time so far,
    so that long trainings have hundreds of ratings and not tens of thousands. The very first
    version is not rated, since it has learned nothing; the first rating begins at once after it
    with a goal, else five seconds later. Ratings stop (`is_over`) after a failure before the first
    rating, after three failures in a row, or after `give_up`.

    Attributes:
        is_over: True once ratings have stopped.
        version: The version rated last, or being rated now; None before the first.

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
        """True while no version may be rated yet."""
        if self.is_over or self._is_rating:
            return True
        return self._due_at is not None and self._clock() < self._due_at

    def is_due(self, version: int) -> bool:
        """Return whether to rate this version, the newest one, now."""
        if self._unlearned is None:
            self._unlearned = version
        if self.is_over or self._is_rating or version in (self._unlearned, self.version):
            return False
        if self._due_at is None:
            self._learning_since = self._clock()
            self._due_at = self._learning_since + self._first_after
        return self._clock() >= self._due_at

    def begin(self, version: int) -> None:
        """Note that the rating of a version begins."""
        self.version, self._began, self._is_rating = version, self._clock(), True

    def end(self, *, is_rated: bool) -> None:
        """Note that the rating has ended, and whether it succeeded (`is_rated`)."""
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
        """Stop all further ratings."""
        self.is_over = True
