"""One line of the result: a figure of ours, whom it is compared with, the limit it has to keep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tests.benchmarks.measuring import Spread, enough, quotients, undisturbed


class Verdict(Enum):
    KEPT = "kept"
    MISSED = "MISSED"
    REPORTED = "reported"
    NOT_ASSERTED = "not asserted"
    NO_PEER = "no peer"


@dataclass(frozen=True, slots=True)
class AtMost:
    bound: float

    def keeps(self, figure: float) -> bool:
        return figure <= self.bound


@dataclass(frozen=True, slots=True)
class AtLeast:
    bound: float

    def keeps(self, figure: float) -> bool:
        return figure >= self.bound


Limit = AtMost | AtLeast


@dataclass(frozen=True, slots=True)
class NotWithin:
    """A goal that was not reached; `bound` is how far it was looked for."""

    bound: float


Reached = float | NotWithin
"""What one seed needed for a goal."""


def needed(reached: Reached) -> float:
    """The figure, infinite where the goal was not reached."""
    return math.inf if isinstance(reached, NotWithin) else reached


@dataclass(frozen=True, slots=True)
class Row:
    """
    What was measured under one name.

    The limit is one of `ratio` where there is one, else of `ours`. `ratio` is ours divided by
    theirs under AtMost, and how many times ours is faster under AtLeast. `why_not` says why the
    limit is not asserted in this run. `seeds` holds the figure of each seed, by the learner.
    """

    topic: str
    name: str
    unit: str
    ours: Spread
    limit: Limit | None = None
    competitor: str = ""
    theirs: Spread | None = None
    ratio: Spread | None = None
    why_not: str = ""
    without_peer: bool = False
    seeds: Mapping[str, Sequence[Reached]] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        if self.without_peer:
            return Verdict.NO_PEER
        judged = self.ratio or self.ours
        if self.limit is None or judged is None:
            return Verdict.REPORTED
        if self.why_not:
            return Verdict.NOT_ASSERTED
        return Verdict.KEPT if self.limit.keeps(judged.median) else Verdict.MISSED


def alone(
    topic: str, name: str, unit: str, ours: Sequence[float], limit: Limit | None = None
) -> Row:
    """A figure that is compared with nothing but its limit."""
    return Row(topic, name, unit, Spread.of(ours), limit)


def alone_with_control(
    topic: str,
    name: str,
    unit: str,
    ours: Sequence[float],
    turns: Sequence[float],
    limit: Limit | None,
) -> Row:
    """The same, of the rounds in which no other work was in the way of a control."""
    why_not = "" if enough(ours, turns) else "other work kept the cores busy"
    spread = Spread.of(undisturbed(ours, turns))
    return Row(topic, name, unit, spread, limit, why_not=why_not if limit else "")


def against(
    topic: str,
    name: str,
    unit: str,
    ours: Sequence[float],
    competitor: str,
    theirs: Sequence[float] | None,
    limit: Limit | None = None,
) -> Row:
    """
    Times of ours and of a competitor, of the same rounds.

    Without figures of theirs, because there is no peer, the row says so.
    """
    if theirs is None:
        return Row(topic, name, unit, Spread.of(ours), limit, competitor, without_peer=True)
    ratio = quotients(theirs, ours) if isinstance(limit, AtLeast) else quotients(ours, theirs)
    return Row(topic, name, unit, Spread.of(ours), limit, competitor, Spread.of(theirs), ratio)


def by_seed(
    topic: str,
    name: str,
    unit: str,
    ours: Sequence[Reached],
    limit: Limit | None = None,
    *,
    competitor: str = "",
    theirs: Sequence[Reached] = (),
    has_ratio: bool = True,
    why_not: str = "",
) -> Row:
    """
    What learners needed, seed by seed; a ratio, where it means something, is that of the medians.

    Where most seeds of both did not reach the goal there is none, and nothing is asserted.
    """
    mine = Spread.of([needed(figure) for figure in ours])
    seeds = {"ours": tuple(ours)}
    if not competitor:
        return Row(topic, name, unit, mine, limit, why_not=why_not, seeds=seeds)
    other = Spread.of([needed(figure) for figure in theirs])
    seeds[competitor] = tuple(theirs)
    ratio = None
    if math.isinf(mine.median) and math.isinf(other.median):
        why_not = why_not or "neither reached it"
    elif has_ratio:
        ratio = Spread.of([mine.median / other.median])
    return Row(topic, name, unit, mine, limit, competitor, other, ratio, why_not, seeds=seeds)
