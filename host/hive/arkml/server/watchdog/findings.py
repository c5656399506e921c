"""Findings about one run: all rules, with their patience, each said once until it has recovered."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from arkml.hive.protocol.page_messages import NoticeKind
from arkml.hive.protocol.settings import Settings
from arkml.server.watchdog.returns import Returns
from arkml.server.watchdog.rules import Collapsed, Diverging, Rule, Sample, Slow, Stuck


class Finding(NamedTuple):
    """Trouble of a run: its kind, and a sentence."""

    kind: NoticeKind
    text: str


class Findings:
    """The rules of one run. A finding is made once, and again when the run was well meanwhile."""

    def __init__(self, settings: Settings) -> None:
        self._returns = Returns()
        self._stuck = Stuck(self._returns)
        self._rules: tuple[Rule, ...] = (
            Diverging(settings),
            Collapsed(settings, self._returns),
            self._stuck,
            Slow(),
        )
        self._bad: Counter[NoticeKind] = Counter()  # looks in a row
        self._said: set[NoticeKind] = set()

    def set_goal(self, goal: float) -> None:
        """Note the mean return that a training wants."""
        self._stuck.set_goal(goal)

    def look(self, sample: Sample) -> list[Finding]:
        """Return what is new by a report of metrics."""
        self._returns.take(sample.values, sample.rows)
        return [
            Finding(rule.kind, sentence)
            for rule in self._rules
            if (sentence := self._news(rule, rule.look(sample)))
        ]

    def _news(self, rule: Rule, sentence: str | None) -> str:
        if sentence is None:
            return ""
        if not sentence:
            self._bad[rule.kind] = 0
            self._said.discard(rule.kind)
            return ""
        self._bad[rule.kind] += 1
        if self._bad[rule.kind] < rule.patience or rule.kind in self._said:
            return ""
        self._said.add(rule.kind)
        return sentence
