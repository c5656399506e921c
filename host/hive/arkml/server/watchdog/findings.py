"""The findings of all rules about one run, each reported once until the run has recovered."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec import Struct, field

from arkml.base.loggers import SafeLogger
from arkml.hive.protocol.page_messages import NoticeKind
from arkml.hive.protocol.settings import Settings
from arkml.server.watchdog.returns import Returns
from arkml.server.watchdog.rules import Collapsed, Diverging, Measure, Rule, Sample, Slow, Stuck

_log = SafeLogger(__name__)


class Finding(NamedTuple):
    """Trouble that a rule has found in a run: its kind, and a sentence for people."""

    kind: NoticeKind
    text: str


class Findings(Struct):
    """
    The state of all rules about one run, and the kinds of trouble that they have reported.

    Trouble is reported once, and again only if the run has recovered meanwhile; `packed` keeps the
    state for the next process of the hive.
    """

    _returns: Returns = field(default_factory=Returns)
    _diverging: Diverging = field(default_factory=Diverging)
    _collapsed: Collapsed = field(default_factory=Collapsed)
    _stuck: Stuck = field(default_factory=Stuck)
    _slow: Slow = field(default_factory=Slow)
    _bad: dict[NoticeKind, int] = field(default_factory=dict)
    """Looks in a row that have found a kind."""
    _said: set[NoticeKind] = field(default_factory=set)

    @classmethod
    def unpacked(cls, data: bytes, run: str) -> Findings:
        """
        Return the state that `packed` has written for a run.

        Damaged data are logged, and replaced by the state before any report.
        """
        try:
            return msgspec.msgpack.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            _log.warning("what the rules have seen of run %s is damaged, left out: %s", run, error)
            return cls()

    def packed(self) -> bytes:
        """
        Return the state as MessagePack, which unlike JSON can hold numbers that are not finite.
        """
        return msgspec.msgpack.encode(self)

    def look(self, sample: Sample, settings: Settings, goal: float | None = None) -> list[Finding]:
        """
        Return the trouble that a report of metrics newly reveals.

        Args:
            sample: The report.
            settings: The settings of the run.
            goal: The mean return at which the training is to end, None for none.

        """
        self._returns.take(sample.values, sample.rows)
        measure = Measure(settings, self._returns, goal)
        rules: tuple[Rule, ...] = (self._diverging, self._collapsed, self._stuck, self._slow)
        return [
            Finding(rule.kind, sentence)
            for rule in rules
            if (sentence := self._news(rule, rule.look(sample, measure)))
        ]

    def _news(self, rule: Rule, sentence: str | None) -> str:
        if sentence is None:
            return ""
        if not sentence:
            self._bad[rule.kind] = 0
            self._said.discard(rule.kind)
            return ""
        self._bad[rule.kind] = self._bad.get(rule.kind, 0) + 1
        if self._bad[rule.kind] < rule.patience or rule.kind in self._said:
            return ""
        self._said.add(rule.kind)
        return sentence
