"""Rules about the metrics of a run: diverging, collapsed, stuck, too slow."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple, Protocol

from arkml.hive.protocol.page_messages import NoticeKind
from arkml.hive.protocol.settings import Settings
from arkml.server.watchdog.returns import Returns

_LEAST_UPDATES = 1_000
"""Updates before a learner is judged."""


class Sample(NamedTuple):
    """A report of metrics, when the run had `rows` rows and its policy `updates` updates."""

    rows: int
    updates: int
    values: Mapping[str, float]


class Rule(Protocol):
    """
    A condition of a run that people want to know of.

    Attributes:
        kind: Kind of its notices.
        patience: Looks in a row that have to find it.

    """

    kind: NoticeKind
    patience: int

    def look(self, sample: Sample) -> str | None:
        """Return one sentence if the run is in trouble, empty if not, None if that is unknown."""


class Diverging:
    """
    Losses that are not finite, or have grown without bound; critics that expect the impossible.

    A loss has grown if its median over ten reports is a thousand times the lowest such median
    before, in sixty reports in a row: it is for a while where the first reward is found. Critics
    expect the impossible if the mean of what they expect is ten times what a whole horizon of the
    largest return would be.
    """

    kind: NoticeKind = "diverging"
    patience = 5

    _LOSSES = ("train/critic_loss", "train/value_loss", "train/td_error")
    _GROWN, _IMPOSSIBLE = 1_000.0, 10.0
    _LEAST = 0.01
    """Losses below that, in units of scaled rewards, are all alike."""
    _REPORTS, _FOR_LONG = 10, 60

    def __init__(self, settings: Settings) -> None:
        self._horizon = 1.0 / max(1.0 - settings.gamma, 1e-4)
        self._recent: dict[str, deque[float]] = {}
        self._lowest: dict[str, float] = {}
        self._grown: Counter[str] = Counter()  # reports in a row
        self._largest, self._length = 0.0, 0.0

    def look(self, sample: Sample) -> str | None:
        values = sample.values
        for name, value in values.items():
            if name.startswith("train/") and not math.isfinite(value):
                return f"the learner diverges: {name} is {value}"
        for name in ("rollout/ep_rew_p10", "rollout/ep_rew_p90", "rollout/ep_rew_mean"):
            self._largest = max(self._largest, abs(values.get(name, 0.0)))
        self._length = max(self._length, values.get("rollout/ep_len_mean", 0.0))
        found = [self._growth(name, values[name]) for name in self._LOSSES if name in values]
        if not found or sample.updates < _LEAST_UPDATES:
            return None
        return next(filter(None, found), "") or self._impossible(values)

    def _growth(self, name: str, value: float) -> str:
        recent = self._recent.setdefault(name, deque(maxlen=self._REPORTS))
        recent.append(abs(value))
        if len(recent) < self._REPORTS:
            return ""
        now = median(recent)
        lowest = self._lowest[name] = min(self._lowest.get(name, now), max(now, self._LEAST))
        self._grown[name] = self._grown[name] + 1 if now >= self._GROWN * lowest else 0
        if self._grown[name] < self._FOR_LONG:
            return ""
        return f"the learner diverges: {name} was {lowest:,.3g}, and is {now:,.3g}"

    def _impossible(self, values: Mapping[str, float]) -> str:
        expected = values.get("train/q_mean")
        if expected is None or not self._length:
            return ""
        bound = self._largest * max(1.0, self._horizon / self._length)
        if abs(expected) <= self._IMPOSSIBLE * max(bound, 1.0):
            return ""
        return (
            f"the learner diverges: its critics expect {expected:,.3g}, and episodes have returned"
            f" {self._largest:,.3g} at most"
        )


class Collapsed:
    """
    A policy that has stopped to explore before it was good, moves too far, or has got worse.

    Attributes:
        kind: Kind of its notices.
        patience: Looks in a row that have to find it.

    """

    kind: NoticeKind = "collapsed"
    patience = 3

    _SATURATED = 0.95
    """The share of actions at their bounds from which on a policy of SAC explores no more."""

    _CERTAIN = -6.0
    """Nats of each action; a uniform one has 0.69, and good policies of SAC keep -4 and more."""

    _CERTAIN_DISCRETE = 0.02
    """The share of the nats of equal choices."""

    _FAR = 10.0
    """Times the `target_kl` that an update moves the policy, in the median of the last reports."""

    _JUMP = 100.0
    """Times the `target_kl`: a policy that has moved so far at once is another one."""

    _REPORTS = 10
    _FELL, _BACK = 0.5, 0.25
    _FELL_ROWS, _FELL_SHARE, _FELL_EPISODES = 2_500, 0.1, 100

    def __init__(self, settings: Settings, returns: Returns) -> None:
        self._returns = returns
        self._continuous = settings.continuous
        self._is_certain_at = self._CERTAIN_DISCRETE * sum(map(math.log, settings.branches))
        self._target = settings.target_kl or 0.01
        self._divergences: deque[float] = deque(maxlen=self._REPORTS)
        self._saturated = self._farthest = 0.0
        self._entropy: float | None = None
        self._above: tuple[int, float] | None = None
        """Rows and episodes when the mean return was last above the middle of its range."""

    def look(self, sample: Sample) -> str | None:
        values = sample.values
        self._saturated = values.get("actions/saturated", self._saturated)
        if "train/approx_kl" in values:
            self._divergences.append(values["train/approx_kl"])
            self._farthest = max(self._farthest, values["train/approx_kl"])
        if "train/entropy" in values:
            self._entropy = values["train/entropy"]
        elif "train/entropy_loss" in values:
            self._entropy = -values["train/entropy_loss"]
        is_early = sample.updates < _LEAST_UPDATES or self._returns.training is None
        if is_early or not any(name.startswith("train/") for name in values):
            return None
        return self._certain() or self._far() or self._fall(sample.rows)

    def _certain(self) -> str:
        """Return a sentence about a policy that explores no more, and is not good."""
        entropy, returns = self._entropy, self._returns
        if entropy is None:
            return ""
        is_extreme = self._continuous and self._saturated >= self._SATURATED
        if is_extreme and not returns.is_better and entropy < self._CERTAIN * self._continuous:
            return (
                f"the policy has collapsed: {self._saturated:.0%} of its actions are extreme, and"
                f" its mean return is {returns.newest:,.4g}, no better than at first"
            )
        is_jump = self._farthest >= self._JUMP * self._target
        if (
            self._continuous
            or entropy >= self._is_certain_at
            or (returns.is_better and not is_jump)
        ):
            return ""
        return (
            f"the policy has collapsed: it explores no more, and its mean return is"
            f" {returns.newest:,.4g}"
        )

    def _far(self) -> str:
        if len(self._divergences) < self._REPORTS:
            return ""
        middle = median(self._divergences)
        if middle < self._FAR * self._target:
            return ""
        return (
            f"the policy may collapse: an update moves it by a divergence of {middle:.2g}, and"
            f" {self._target:g} is aimed at"
        )

    def _fall(self, rows: int) -> str | None:
        course, episodes = self._returns.training, self._returns.episodes
        assert course is not None
        gain = course.best - course.first
        if not self._returns.is_better or gain <= 0:
            return ""
        fallen = (course.best - course.newest) / gain
        if fallen < self._FELL or self._above is None:
            self._above = rows, episodes
            return "" if fallen < self._BACK else None
        since, ended = self._above
        patience = max(self._FELL_ROWS, self._FELL_SHARE * rows)
        if rows - since < patience or episodes - ended < self._FELL_EPISODES:
            return None
        return (
            f"the policy has collapsed: its mean return was {course.best:,.4g}, and is"
            f" {course.newest:,.4g} for {rows - since:,} rows"
        )


class Stuck:
    """A run that is no better than it was at its beginning, or far from its goal for long."""

    kind: NoticeKind = "stuck"
    patience = 1

    _ROWS, _ROLLOUTS, _EPISODES = 40_000, 20.0, 200.0
    """The least of a run before it is judged."""

    _FLAT = 0.5
    """The last share of a run in which nothing was better than before."""

    _FAR, _STEP = 0.1, 0.02
    """Shares of the way from the beginning to the goal: what is left, and what is a step on it."""

    def __init__(self, returns: Returns) -> None:
        self._returns = returns
        self._goal: float | None = None
        self._stepped: tuple[float, int] | None = None
        """The mean return, and the rows, of the last step to the goal."""
        self._rollout = 0.0
        self._has_begun_before: bool | None = None
        self._has_demonstrations = False

    def set_goal(self, goal: float) -> None:
        """Note the mean return that a training wants."""
        if goal != self._goal:
            self._goal, self._stepped = goal, None

    def look(self, sample: Sample) -> str | None:
        values, returns = sample.values, self._returns
        if self._has_begun_before is None:  # a learner reports long before it has so many updates
            self._has_begun_before = sample.updates > _LEAST_UPDATES
        self._rollout = values.get("replay/rollout_rows", self._rollout)
        self._has_demonstrations |= values.get("replay/demonstration_share", 0.0) > 0.0
        least = max(self._ROWS, self._ROLLOUTS * self._rollout)
        is_early = sample.rows < least or sample.updates < _LEAST_UPDATES
        if is_early or returns.training is None or returns.episodes < self._EPISODES:
            return None
        return self._beginning(sample.rows) or self._short_of_goal(sample.rows)

    def _beginning(self, rows: int) -> str:
        returns = self._returns
        if returns.is_better or self._has_begun_before or self._has_demonstrations:
            return ""
        course = returns.evaluated or returns.training
        assert course is not None
        return (
            f"the run is stuck: its mean return is {course.newest:,.4g} after {rows:,} rows, no"
            f" better than at first ({course.first:,.4g})"
        )

    def _short_of_goal(self, rows: int) -> str:
        course, goal = self._returns.evaluated or self._returns.training, self._goal
        assert course is not None
        if goal is None:
            return ""
        way = abs(goal - course.first)
        if self._stepped is None or course.best > self._stepped[0] + self._STEP * way:
            self._stepped = course.best, course.best_at
        flat = rows - self._stepped[1]
        if goal - course.best <= self._FAR * way or flat < max(self._ROWS, self._FLAT * rows):
            return ""
        return (
            f"the run is stuck: its mean return has not been better for {flat:,} rows than"
            f" {course.best:,.4g}, and {goal:,.4g} is the goal"
        )


class Slow:
    """A learner that makes less than half of the updates for each row that are wanted."""

    kind: NoticeKind = "slow"
    patience = 1

    _WANTED, _REACHED = "pace/samples_per_insert_wanted", "pace/samples_per_insert_reached"
    _BAD, _WELL = 0.5, 0.75
    _SECONDS = 60.0
    """Seconds of learning for which it has to be too slow: what is reached is of a minute, too."""

    def __init__(self) -> None:
        self._wanted = 0.0
        self._since: float | None = None

    def look(self, sample: Sample) -> str | None:
        self._wanted = sample.values.get(self._WANTED, self._wanted)
        reached, now = sample.values.get(self._REACHED), sample.values.get("time/time_elapsed")
        if reached is None or now is None or not self._wanted or not sample.updates:
            return None
        share = reached / self._wanted
        if share >= self._BAD:
            self._since = None
            return "" if share >= self._WELL else None
        if self._since is None or now < self._since:  # another learner counts anew
            self._since = now
        if now - self._since < self._SECONDS:
            return None
        return (
            f"the learner is too slow: it makes {share:.2g} of the updates for each row that are"
            " wanted"
        )
