"""The histograms of one run over time: its store, and replies."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence

from arkml.base.loggers import SafeLogger
from arkml.hive.protocol.histograms import (
    SHOWN_BINS,
    Histogram,
    HistogramInfo,
    HistogramReply,
    common_grid,
    on_grid,
)
from arkml.hive.protocol.reports import ReportClock
from arkml.server.metrics_store import MetricsStore

_log = SafeLogger(__name__)

_MOST_KEPT = 100  # replies, of some 20 kB each


class RunHistograms:
    """The histograms of a run in its store; histograms of older rows are added up in the store."""

    def __init__(self, run: str, store: MetricsStore) -> None:
        self._run = run
        self._store = store
        self._using = asyncio.Lock()
        self._clock: ReportClock | None = None
        self._replies: dict[tuple[str, int], HistogramReply] = {}  # since the last report

    async def add(self, rows: int, histograms: list[Histogram]) -> None:
        """Add histograms of features and actions, made when the run had `rows` rows."""
        async with self._using:
            self._replies.clear()
            try:
                await self._store.do(self._add, rows, histograms)
            except (OSError, sqlite3.Error) as error:
                _log.warning("histograms of run %s cannot be written: %s", self._run, error)

    async def reply(self, name: str, since: int) -> HistogramReply:
        """
        Return the newest summaries of all histograms, and one of them over time.

        Args:
            name: The name of the histogram to return over time, empty for none.
            since: The number of rows of the run at which it begins.

        Raises:
            OSError: The store cannot be read.
            sqlite3.Error: The store cannot be read.

        """
        asked = name, since
        async with self._using:
            known = self._replies.get(asked)
            if known is not None:
                return known
            reply = await self._store.do(self._reply, name, since)
            if reply.times or not name:  # an unknown one may be any text
                if len(self._replies) >= _MOST_KEPT:
                    self._replies.clear()
                self._replies[asked] = reply
            return reply

    def _add(self, rows: int, histograms: list[Histogram]) -> None:
        self._clock = self._clock or ReportClock(self._store.last_histograms())
        now = self._clock.now()
        self._store.add_histograms([(now, (rows, histograms))])
        self._store.thin(now)

    def _reply(self, name: str, since: int) -> HistogramReply:
        newest: dict[str, Histogram] = {}
        found: list[tuple[int, int, Histogram]] = []
        for at, (rows, histograms) in self._store.histograms():
            for histogram in histograms:
                newest[histogram.name] = histogram
                if histogram.name == name and rows >= since:
                    found.append((at, rows, histogram))
        infos = [HistogramInfo(one.name, *one[2:]) for one in newest.values()]
        infos.sort(key=lambda info: _place(info.name))
        if not found:
            return HistogramReply(infos, [], [], [], [])
        times, rows_then, shown = zip(*found, strict=True)
        edges, counts = _aligned(shown)
        return HistogramReply(infos, list(times), list(rows_then), edges, counts)


def _aligned(histograms: Sequence[Histogram]) -> tuple[list[float], list[list[int]]]:
    """Return the edges of bins that hold all values, and the counts of each histogram in them."""
    grid = exponent, first, last = common_grid([one.bins for one in histograms], SHOWN_BINS)
    edges = [number * 2.0**exponent for number in range(first, last + 2)]
    return edges, [on_grid(one.bins, *grid) for one in histograms]


def _place(name: str) -> tuple[str, int]:
    """Return the key by which names are sorted: the kind, then the number."""
    kind, _, number = name.partition("/")
    return kind, int(number) if number.isdecimal() else 0
