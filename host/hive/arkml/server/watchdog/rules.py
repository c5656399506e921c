"""Rules about the metrics of a run: diverging, collapsed, stuck, too slow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import ClassVar, NamedTuple, Protocol

from msgspec import Struct, field

from arkml.hive.protocol.page_messages import NoticeKind
from arkml.hive.protocol.settings import Settings
from arkml.server.watchdog.returns import Returns

_LEAST_UPDATES = 1_000
"""Updates before a learner is judged."""


class Sample(NamedTuple):
    """
    A report of metrics by name, when the run had `rows` rows and its policy `updates` updates.
    """

    rows: int
    updates: int
    values: Mapping[str, float]


class Measure(NamedTuple):
    """
    The facts by which rules judge a report.

    Attributes:
        settings: The settings of the run.
        returns: The mean returns of the run so far.
        goal: The mean return at which the training is to end, None for none.

    """

    settings: Settings
    returns: Returns
    goal: float | None = None


class Rule(Protocol):
    """
    A rule that detects one kind of trouble in a run's reports of metrics.

    A rule is a struct with all that it remembers of earlier reports, so that it can be stored and
    continues after a restart.

    Attributes:
        kind: Kind of its notices.
        patience: Number of successive reports in which it must find trouble before it is reported.

    """

    kind: ClassVar[NoticeKind]
    patience: ClassVar[int]

    def look(self, sample: Sample, measure: Measure, /) -> str | None:
        """Return a sentence if the run is in trouble, "" if it is not, None if that is unknown."""


class Diverging(Struct):
    """
    A rule that detects losses that are not finite or grow without bound, and absurd critics.

    A loss has grown if its median over ten reports is a thousand times the lowest such median so
    far, in sixty successive reports; for a while, losses also grow when the first reward is found.
    Critics are absurd if the mean of their estimates is ten times the return of a whole horizon
    with the largest reward so far.
    """

    kind: ClassVar[NoticeKind] = "diverging"
    patience: ClassVar = 5

    _LOSSES: ClassVar = ("train/critic_loss", "train/value_loss", "train/td_error")
    _GROWN: ClassVar = 1_000.0
    _IMPOSSIBLE: ClassVar = 10.0
    _LEAST: ClassVar = 0.01
    """Losses below that, in units of scaled rewards, are all alike."""
    _REPORTS: ClassVar = 10
    _FOR_LONG: ClassVar = 60

    _recent: dict[str, list[float]] = field(default_factory=dict)
    _lowest: dict[str, float] = field(default_factory=dict)
    _grown: dict[str, int] = field(default_factory=dict)
    """Reports in a row."""
    _largest: float = 0.0
    _length: float = 0.0

    def look(self, sample: Sample, measure: Measure) -> str | None:
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
        return next(filter(None, found), "") or self._impossible(values, measure.settings.gamma)

    def _growth(self, name: str, value: float) -> str:
        recent = [*self._recent.get(name, ()), abs(value)][-self._REPORTS :]
        self._recent[name] = recent
        if len(recent) < self._REPORTS:
            return ""
        now = median(recent)
        lowest = self._lowest[name] = min(self._lowest.get(name, now), max(now, self._LEAST))
        is_grown = now >= self._GROWN * lowest
        self._grown[name] = self._grown.get(name, 0) + 1 if is_grown else 0
        if self._grown[name] < self._FOR_LONG:
            return ""
        return f"the learner diverges: {name} was {lowest:,.3g}, and is {now:,.3g}"

    def _impossible(self, values: Mapping[str, float], gamma: float) -> str:
        expected = values.get("train/q_mean")
        if expected is None or not self._length or not self._largest:
            return ""  # before any reward, they expect the bonus of SAC for exploring, and no more
        horizon = 1.0 / max(1.0 - gamma, 1e-4)
        bound = self._largest * max(1.0, horizon / self._length)
        if abs(expected) <= self._IMPOSSIBLE * max(bound, 1.0):
            return ""
        return (
            f"the learner diverges: its critics expect {expected:,.3g}, and episodes have returned"
            f" {self._largest:,.3g} at most"
        )


class Collapsed(Struct):
    """
    A rule that detects a policy that stops exploring too early, changes too fast, or gets worse.

    Attributes:
        kind: Kind of its notices.
        patience: Number of successive reports in which it must find trouble before it is reported.

    """

    kind: ClassVar[NoticeKind] = "collapsed"
    patience: ClassVar = 3

    _SATURATED: ClassVar = 0.95
    """The share of actions at their bounds from which on a policy of SAC explores no more."""

    _CERTAIN: ClassVar = -6.0
    """Nats of each action; a uniform one has 0.69, and good policies of SAC keep -4 and more."""

    _CERTAIN_DISCRETE: ClassVar = 0.02
    """The share of the nats of equal choices."""

    _FAR: ClassVar = 10.0
    """Times the `target_kl` that an update moves the policy, in the median of the last reports."""

    _JUMP: ClassVar = 100.0
    """Times the `target_kl`: a policy that has moved so far at once is another one."""

    _REPORTS: ClassVar = 10
    _FELL: ClassVar = 0.5
    _BACK: ClassVar = 0.25
    _FELL_ROWS: ClassVar = 2_500
    _FELL_SHARE: ClassVar = 0.1
    _FELL_EPISODES: ClassVar = 100

    _divergences: list[float] = field(default_factory=list)
    _saturated: float = 0.0
    _farthest: float = 0.0
    _entropy: float | None = None
    _above: tuple[int, float] | None = None
    """Rows and episodes when the mean return was last above the middle of its range."""

    def look(self, sample: Sample, measure: Measure) -> str | None:
        values = sample.values
        self._saturated = values.get("actions/saturated", self._saturated)
        if "train/approx_kl" in values:
            moved = values["train/approx_kl"]
            self._divergences = [*self._divergences, moved][-self._REPORTS :]
            self._farthest = max(self._farthest, moved)
        if "train/entropy" in values:
            self._entropy = values["train/entropy"]
        elif "train/entropy_loss" in values:
            self._entropy = -values["train/entropy_loss"]
        settings, returns = measure.settings, measure.returns
        is_early = sample.updates < _LEAST_UPDATES or returns.training is None
        if is_early or not any(name.startswith("train/") for name in values):
            return None
        target = settings.target_kl or 0.01
        return (
            self._certain(settings, returns, target)
            or self._far(target)
            or self._fall(sample.rows, returns)
        )

    def _certain(self, settings: Settings, returns: Returns, target: float) -> str:
        """Return a sentence about a policy that explores no more, and is not good."""
        entropy, continuous = self._entropy, settings.continuous
        if entropy is None:
            return ""
        is_extreme = continuous and self._saturated >= self._SATURATED
        if is_extreme and not returns.is_better and entropy < self._CERTAIN * continuous:
            return (
                f"the policy has collapsed: {self._saturated:.0%} of its actions are extreme, and"
                f" its mean return is {returns.newest:,.4g}, no better than at first"
            )
        is_jump = self._farthest >= self._JUMP * target
        is_certain_at = self._CERTAIN_DISCRETE * sum(map(math.log, settings.branches))
        if continuous or entropy >= is_certain_at or (returns.is_better and not is_jump):
            return ""
        return (
            f"the policy has collapsed: it explores no more, and its mean return is"
            f" {returns.newest:,.4g}"
        )

    def _far(self, target: float) -> str:
        if len(self._divergences) < self._REPORTS:
            return ""
        middle = median(self._divergences)
        if middle < self._FAR * target:
            return ""
        return (
            f"the policy may collapse: an update moves it by a divergence of {middle:.2g}, and"
            f" {target:g} is aimed at"
        )

    def _fall(self, rows: int, returns: Returns) -> str | None:
        course, episodes = returns.training, returns.episodes
        assert course is not None
        gain = course.best - course.first
        if not returns.is_better or gain <= 0:
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


class Stuck(Struct):
    """
    A rule that detects a run that is no better than at its beginning, or stays far from its goal.
    """

    kind: ClassVar[NoticeKind] = "stuck"
    patience: ClassVar = 1

    _ROWS: ClassVar = 40_000
    _ROLLOUTS: ClassVar = 20.0
    _EPISODES: ClassVar = 200.0
    """Rows, rollouts and episodes of a run before it is judged."""

    _FLAT: ClassVar = 0.5
    """The last share of a run in which nothing was better than before."""

    _FAR: ClassVar = 0.1
    _STEP: ClassVar = 0.02
    """Shares of the way from the beginning to the goal: what is left, and what is a step on it."""

    _goal: float | None = None
    _stepped: tuple[float, int] | None = None
    """The mean return, and the rows, of the last step to the goal."""
    _rollout: float = 0.0
    _has_begun_before: bool | None = None
    _has_demonstrations: bool = False

    def look(self, sample: Sample, measure: Measure) -> str | None:
        values, returns = sample.values, measure.returns
        if measure.goal != self._goal:
            self._goal, self._stepped = measure.goal, None
        if self._has_begun_before is None:  # a learner reports long before it has so many updates
            self._has_begun_before = sample.updates > _LEAST_UPDATES
        self._rollout = values.get("replay/rollout_rows", self._rollout)
        self._has_demonstrations |= values.get("replay/demonstration_share", 0.0) > 0.0
        least = max(self._ROWS, self._ROLLOUTS * self._rollout)
        is_early = sample.rows < least or sample.updates < _LEAST_UPDATES
        if is_early or returns.training is None or returns.episodes < self._EPISODES:
            return None
        return self._beginning(sample.rows, returns) or self._short_of_goal(sample.rows, returns)

    def _beginning(self, rows: int, returns: Returns) -> str:
        if returns.is_better or self._has_begun_before or self._has_demonstrations:
            return ""
        course = returns.evaluated or returns.training
        assert course is not None
        return (
            f"the run is stuck: its mean return is {course.newest:,.4g} after {rows:,} rows, no"
            f" better than at first ({course.first:,.4g})"
        )

    def _short_of_goal(self, rows: int, returns: Returns) -> str:
        course, goal = returns.evaluated or returns.training, self._goal
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


class Slow(Struct):
    """
    A rule that detects a learner with less than half of the updates for each row that are wanted.
    """

    kind: ClassVar[NoticeKind] = "slow"
    patience: ClassVar = 1

    _WANTED: ClassVar = "pace/samples_per_insert_wanted"
    _REACHED: ClassVar = "pace/samples_per_insert_reached"
    _BAD: ClassVar = 0.5
    _WELL: ClassVar = 0.75
    _SECONDS: ClassVar = 60.0
    """Seconds of learning for which it has to be too slow: what is reached is of a minute, too."""

    _wanted: float = 0.0
    _since: float | None = None

    def look(self, sample: Sample, _: Measure) -> str | None:
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
