"""The policies that a learner had while it learned a game, rated when the learning is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any, Generic, TypeVar

from tests.benchmarks.suite import SuiteGame

P = TypeVar("P")

EVERY = 1_024
"""Rows from one rating to the next."""

EPISODES = 100
"""Episodes without noise of a rating."""

HOLDING = 5
"""Ratings after the one that reaches the goal, which tell whether it is held."""

AHEAD = (HOLDING + 1) * EVERY
"""Rows beyond those of a game, for the ratings that follow the one that reaches the goal."""


@dataclass(slots=True)
class Policies(Generic[P]):
    """Policies every 1,024 rows, with the rows and seconds since the first policy."""

    start: float = field(default_factory=time.perf_counter)
    rows: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    policies: list[P] = field(default_factory=list)

    def note(self, rows: int, policy: Callable[[], P]) -> None:
        """Keep the policy if it is due after `rows` rows."""
        if rows >= EVERY * (len(self.rows) + 1):
            self.rows.append(rows)
            self.seconds.append(time.perf_counter() - self.start)
            self.policies.append(policy())

    def rated(self, goal: float, rate: Callable[[P], float]) -> dict[str, Any]:
        """
        Return the rows and seconds of the first policy at the goal, None if there is none.

        `held` of the next `of` ratings are at the goal, too; policies after those are not rated.
        `played` are rows in all, `rate` is rows a second.
        """
        ratings: list[float] = []
        reached: int | None = None
        for number, policy in enumerate(self.policies):
            if reached is not None and number > reached + HOLDING:
                break
            ratings.append(rate(policy))
            if reached is None and ratings[-1] >= goal:
                reached = number
        result: dict[str, Any] = {"rows": None, "seconds": None, "held": None, "of": None}
        if reached is not None:
            following = ratings[reached + 1 :]
            result = {
                "rows": self.rows[reached],
                "seconds": round(self.seconds[reached], 2),
                "held": sum(rating >= goal for rating in following),
                "of": len(following),
            }
        result["ratings"] = [round(rating, 3) for rating in ratings]
        rows, seconds = (self.rows[-1], self.seconds[-1]) if self.rows else (0, 0.0)
        result["played"] = rows
        result["played_seconds"] = round(seconds, 2)
        result["rate"] = round(rows / seconds) if seconds else 0
        return result


def statistic(game: SuiteGame, returns: Sequence[float]) -> float:
    """Return the mean or the median of returns, whichever rates a game."""
    return median(returns) if game.statistic == "median" else fmean(returns)
