"""One line of the result: a figure of ours, whom it is compared with, the limit it has to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
class Row:
    """
    What was measured under one name.

    The limit is one of `ratio` where there is one, else of `ours`. `ratio` is ours divided by
    theirs under AtMost, and how many times ours is faster under AtLeast. `why_not` says why the
    limit is not asserted in this run.
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
