"""The watch over one run: its rules, their findings, and the receivers of notices."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from arkml.base.loggers import SafeLogger
from arkml.base.terminal import harmless
from arkml.hive.notifier import Notifier, notice_of
from arkml.hive.protocol.page_messages import GoalReached, HistoryEntry, NoticeKind
from arkml.hive.protocol.reports import Point
from arkml.server.document import Document
from arkml.server.history import RunHistory
from arkml.server.run_origin import StartFile
from arkml.server.watchdog.findings import Findings
from arkml.server.watchdog.rules import Sample

_log = SafeLogger(__name__)

_AGAIN = 600_000_000_000
"""Nanoseconds between two notices of one kind about a run, at least."""


class Notices:
    """
    The receivers of notices about all runs of a hive.

    `page` is the URL of the hive's page, empty if it is not known.
    """

    def __init__(self, notifier: Notifier, page: str) -> None:
        self._notifier = notifier
        self._page = page

    def tell(self, document: Document, entry: HistoryEntry) -> None:
        """Send a notice about an event of a run to all receivers, in the background."""
        if entry.about is not None:
            request = document.request
            run = document.id, request.name, request.game
            notice = notice_of(run, entry.about, entry.text, entry.at, self._page)
            self._notifier.tell(notice)


class RunWatch:
    """
    The rules of one run, which look at each report of its metrics.

    A finding becomes an event of the run, a line of the log and a notice. A kind of trouble is
    reported once, and again when the run has recovered from it, at most every ten minutes. This
    holds across restarts of the hive: the state of the rules is stored with the metrics, and the
    findings are in the history. `counts` has the number of findings of each kind since the process
    began.

    Args:
        document: The state of the run.
        start: The file with the goal of the run.
        history: The events of the run.
        notices: The receivers of notices.

    """

    def __init__(
        self, document: Document, start: StartFile, history: RunHistory, notices: Notices
    ) -> None:
        self.counts: Counter[NoticeKind] = Counter()
        self._document = document
        self._start = start
        self._history = history
        self._notices = notices
        self._findings = Findings()
        self._said_at: dict[NoticeKind, int] = {
            entry.about: entry.at for entry in history.entries if entry.about is not None
        }

    def restore(self, seen: bytes) -> None:
        """Continue with the state of the rules that an earlier call of `look` returned."""
        self._findings = Findings.unpacked(seen, self._document.id)

    def look(self, points: Sequence[Point], rows: int) -> bytes:
        """
        Look at a report of metrics, and return the state of the rules after it.

        `rows` is the number of rows that the run had.
        """
        values = {name: float(value) for name, _, value in points}
        sample, goal = Sample(rows, self._document.n_opts, values), self._start.now.goal
        settings = self._document.request.settings
        for kind, text in self._findings.look(sample, settings, goal.mean_return if goal else None):
            self._say(kind, text)
        return self._findings.packed()

    def note_restart(self, reason: str, *, has_diverged: bool) -> None:
        """
        Note that the learner has ended and another one starts; the log has this already.

        Args:
            reason: Why the learner has ended.
            has_diverged: Whether losses or weights were not finite.

        """
        if has_diverged:
            self._say("diverging", f"the learner diverges: {reason}")
        self.counts["restarted"] += 1
        text = f"the learner ended, another one starts: {harmless(reason)}"
        entry = self._history.add("warning", text, "restarted")
        if self._is_due("restarted"):
            self._notices.tell(self._document, entry)

    def note_goal(self, report: GoalReached) -> None:
        """Note that a training that feeds this run has reached its goal."""
        self._say(
            "goal",
            f"the goal is reached: a mean return of {report.mean_return:,.4g} in"
            f" {report.episodes:,} episodes, and {report.wanted:,.4g} was wanted",
        )

    def _say(self, kind: NoticeKind, sentence: str) -> None:
        if not self._is_due(kind):
            return
        self.counts[kind] += 1
        text = harmless(sentence)
        entry = self._history.add("goal" if kind == "goal" else "warning", text, kind)
        log = _log.info if kind == "goal" else _log.warning
        log("run %s (%s): %s", self._document.id, kind, text)
        self._notices.tell(self._document, entry)

    def _is_due(self, kind: NoticeKind) -> bool:
        """Return whether a kind may be said now, and count it as said."""
        now, last = time.time_ns(), self._said_at.get(kind)
        if last is not None and 0 <= now - last < _AGAIN:
            return False
        self._said_at[kind] = now
        return True
