"""The mean returns of a run as its rules see them: the first, the best, and their spread."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

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


class Course(Struct):
    """
    The first, the best and the newest of a series of mean returns.

    `best_at` is the number of rows that the run had at the best one.
    """

    first: float
    best: float
    best_at: int
    newest: float

    def add(self, value: float, rows: int) -> None:
        """Add the next mean return, reached when the run had `rows` rows."""
        self.newest = value
        if value > self.best:
            self.best, self.best_at = value, rows


class Returns(Struct):
    """
    Mean returns of training episodes and of evaluations.

    Means of training episodes outside of their tenth to ninetieth percentile are left out: a single
    episode with a return of 1e30 would otherwise determine its mean.

    Attributes:
        training: Means of the last 100 training episodes, None before twenty have ended.
        evaluated: Means of three evaluations each, None before three evaluations.
        episodes: Number of training episodes that have ended.

    """

    training: Course | None = None
    evaluated: Course | None = None
    episodes: float = 0.0
    _low: float = 0.0
    _high: float = 0.0
    _spread: float = 0.0
    _evaluations: list[float] = field(default_factory=list)

    @property
    def spread(self) -> float:
        """
        The distance between the percentiles when the run began, at least a hundredth of the mean.
        """
        first = 0.0 if self.training is None else self.training.first
        return max(self._spread, 0.01 * abs(first))

    @property
    def is_better(self) -> bool:
        """True if the mean return is better now than when the run began."""
        found = ((self.training, _GAIN_TRAINING), (self.evaluated, _GAIN_EVALUATED))
        return any(
            course is not None and course.best - course.first > share * self.spread
            for course, share in found
        )

    @property
    def newest(self) -> float | None:
        """
        The newest mean return of evaluations, or without one of training episodes; None before any.
        """
        course = self.evaluated or self.training
        return None if course is None else course.newest

    def take(self, values: Mapping[str, float], rows: int) -> bool:
        """
        Add a report of metrics; return whether it has a new mean return.

        Args:
            values: The value of each metric by its name.
            rows: The number of rows that the run had.

        """
        self.episodes = values.get(_EPISODES, self.episodes)
        self._low, self._high = values.get(_LOW, self._low), values.get(_HIGH, self._high)
        is_new = _MEAN in values and self._low <= values[_MEAN] <= self._high
        if is_new and self.training is not None:
            self.training.add(values[_MEAN], rows)
        elif is_new and self.episodes >= _LEAST_EPISODES:
            self.training = _begun(values[_MEAN], rows)
            self._spread = self._high - self._low
        if _EVALUATED in values:
            is_new |= self._evaluate(values[_EVALUATED], rows)
        return is_new

    def _evaluate(self, value: float, rows: int) -> bool:
        self._evaluations = [*self._evaluations, value][-_JOINED:]
        if len(self._evaluations) < _JOINED:
            return False
        mean = sum(self._evaluations) / _JOINED
        if self.evaluated is None:
            self.evaluated = _begun(mean, rows)
        else:
            self.evaluated.add(mean, rows)
        return True


def _begun(value: float, rows: int) -> Course:
    """Return a course that begins with a mean return."""
    return Course(first=value, best=value, best_at=rows, newest=value)
