"""The histograms of one run over time: their files, thinned by age, and replies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from arkml.base.loggers import SafeLogger
from arkml.hive.protocol.histograms import (
    SHOWN_BINS,
    Histogram,
    HistogramInfo,
    HistogramPoints,
    HistogramReply,
    common_grid,
    on_grid,
    thin_histograms,
)
from arkml.hive.protocol.reports import HOUR, MINUTE, ReportClock
from arkml.server.report_files import ReportFiles, ReportKind

_log = SafeLogger(__name__)

_Report = tuple[int, HistogramPoints]

_MOST_KEPT = 100  # replies, of some 20 kB each

_LINE = msgspec.json.Decoder(_Report)


class RunHistograms:
    """Files with a line for each report of a run's learner, added up by age."""

    def __init__(self, run: str, directory: Path) -> None:
        self._run = run
        self._files = ReportFiles(directory, _HISTOGRAMS)
        self._using = asyncio.Lock()
        last = 0
        try:
            self._files.repair()
            last = self._files.last_time()
        except OSError as error:
            _log.warning("histograms of run %s cannot be read: %s", run, error)
        self._clock = ReportClock(last)
        self._replies: dict[tuple[str, int], HistogramReply] = {}  # since the last report

    async def add(self, rows: int, histograms: list[Histogram]) -> None:
        """Add histograms that were made when the run had `rows` rows."""
        async with self._using:
            self._replies.clear()
            try:
                await asyncio.to_thread(self._add, (self._clock.now(), (rows, histograms)))
            except OSError as error:
                _log.warning("histograms of run %s cannot be written: %s", self._run, error)

    async def reply(self, name: str, since: int) -> HistogramReply:
        """Return the newest figures of all, and one histogram from a row on. Raises OSError."""
        asked = name, since
        async with self._using:
            known = self._replies.get(asked)
            if known is not None:
                return known
            reply = await asyncio.to_thread(self._reply, name, since)
            if reply.times or not name:  # an unknown one may be any text
                if len(self._replies) >= _MOST_KEPT:
                    self._replies.clear()
                self._replies[asked] = reply
            return reply

    @staticmethod
    def line(report: _Report) -> bytes:
        """Return the line that a file keeps for a report."""
        return _format(report)

    def _add(self, report: _Report) -> None:
        self._files.append(report)
        self._files.thin(report[0])

    def _reply(self, name: str, since: int) -> HistogramReply:
        newest: dict[str, Histogram] = {}
        found: list[tuple[int, int, Histogram]] = []
        for at, (rows, histograms) in (one for part in self._files.read() for one in part):
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


def _format(report: _Report) -> bytes:
    return msgspec.json.encode(report) + b"\n"


def _parse(line: bytes) -> _Report | None:
    """Return the report in a line, None if it is damaged."""
    try:
        report: _Report = _LINE.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return report


_HISTOGRAMS = ReportKind(
    ("histograms.jsonl", "histograms.minutes.jsonl", "histograms.old.jsonl"),
    (10 * MINUTE, 2 * HOUR),
    _parse,
    _format,
    thin_histograms,
)
