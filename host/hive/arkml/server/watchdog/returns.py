"""The returns of a run as its rules see them: where they began, their best, their spread."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

_MEAN, _LOW, _HIGH = "rollout/ep_rew_mean", "rollout/ep_rew_p10", "rollout/ep_rew_p90"
_EVALUATED, _EPISODES = "eval/mean_reward", "time/episodes"

_LEAST_EPISODES = 20
"""Training episodes whose mean counts as where a run began."""

_JOINED = 3
"""Evaluations whose mean is one value: the highest of single ones is too high."""

_GAIN_TRAINING, _GAIN_EVALUATED = 0.25, 0.5
"""
Shares of the spread by which a mean is better than it was at the beginning, and not by chance.

The mean of a hundred training episodes has an error of 0.04 of the distance of their tenth and
ninetieth percentile, that of three evaluations of ten episodes 0.07.
"""


class Course:
    """The first, the highest and the newest of mean returns, with the rows at the last two."""

    def __init__(self, value: float, rows: int) -> None:
        self.first = self.lowest = self.best = self.newest = value
        self.best_at = self.newest_at = rows

    def add(self, value: float, rows: int) -> None:
        """Add the next mean return."""
        self.newest, self.newest_at = value, rows
        self.lowest = min(self.lowest, value)
        if value > self.best:
            self.best, self.best_at = value, rows


class Returns:
    """
    Mean returns of training episodes and of evaluations.

    Means of training episodes that are not between their tenth and ninetieth percentile are left
    out: one episode of 1e30 makes them what it is.

    Attributes:
        training: Means of the last 100 training episodes, None before twenty have ended.
        evaluated: Means of three evaluations each, None before there are as many.
        episodes: Training episodes that have ended.

    """

    def __init__(self) -> None:
        self.training: Course | None = None
        self.evaluated: Course | None = None
        self.episodes = 0.0
        self._low = self._high = self._spread = 0.0
        self._evaluations: deque[float] = deque(maxlen=_JOINED)

    @property
    def spread(self) -> float:
        """The distance of the percentiles when the run began, a hundredth of the mean at least."""
        first = 0.0 if self.training is None else self.training.first
        return max(self._spread, 0.01 * abs(first))

    @property
    def is_better(self) -> bool:
        """True if the run has become better than it was when it began."""
        found = ((self.training, _GAIN_TRAINING), (self.evaluated, _GAIN_EVALUATED))
        return any(
            course is not None and course.best - course.first > share * self.spread
            for course, share in found
        )

    @property
    def newest(self) -> float | None:
        """The newest mean return: of evaluations, else of training episodes, None before any."""
        course = self.evaluated or self.training
        return None if course is None else course.newest

    def take(self, values: Mapping[str, float], rows: int) -> bool:
        """Take a report; return whether it has a new mean return."""
        self.episodes = values.get(_EPISODES, self.episodes)
        self._low, self._high = values.get(_LOW, self._low), values.get(_HIGH, self._high)
        is_new = _MEAN in values and self._low <= values[_MEAN] <= self._high
        if is_new and self.training is not None:
            self.training.add(values[_MEAN], rows)
        elif is_new and self.episodes >= _LEAST_EPISODES:
            self.training, self._spread = Course(values[_MEAN], rows), self._high - self._low
        if _EVALUATED in values:
            is_new |= self._evaluate(values[_EVALUATED], rows)
        return is_new

    def _evaluate(self, value: float, rows: int) -> bool:
        self._evaluations.append(value)
        if len(self._evaluations) < _JOINED:
            return False
        mean = sum(self._evaluations) / _JOINED
        if self.evaluated is None:
            self.evaluated = Course(mean, rows)
        else:
            self.evaluated.add(mean, rows)
        return True
