"""The metrics of one run: files of all values, and the newest value of each."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from pathlib import Path

from arkml.base.loggers import SafeLogger
from arkml.hive.protocol.reports import Point, Report, ReportClock
from arkml.hive.protocol.results import EvaluationReport
from arkml.server.best_policy import mean, standard_deviation
from arkml.server.index import Index
from arkml.server.metrics_files import MetricsFiles

_log = SafeLogger(__name__)

Points = list[Point]
"""Values of metrics: name, step, value."""

_RECENT = 64


_MAX_UNRECORDED = 1_000


def evaluation_points(report: EvaluationReport, rows: int) -> Points:
    """Return the metrics of an evaluation, when the run has `rows` rows."""
    step = rows if report.rows is None else min(report.rows, rows)
    points = [
        ("eval/mean_reward", step, mean(report.returns)),
        ("eval/std_reward", step, standard_deviation(report.returns)),
        ("eval/mean_ep_length", step, mean(report.lengths)),
    ]
    if report.successes is not None:
        points.append(("eval/success_rate", step, mean(report.successes)))
    return points


class UnrecordedPoints:
    """
    Metrics of the server that the learner is to write to its event files.

    `send` returns False while there is no learner; the newest of the unsent points are kept for the
    next learner.
    """

    def __init__(self, send: Callable[..., bool]) -> None:
        self._send = send
        self._waiting: deque[Points] = deque(maxlen=_MAX_UNRECORDED)

    def add(self, points: Points) -> None:
        """Send points, now or later."""
        self._waiting.append(points)
        self.send()

    def send(self) -> None:
        """Send the waiting points, as long as there is a learner that takes them."""
        while self._waiting and self._send("record", points=self._waiting[0]):
            self._waiting.popleft()


class RunMetrics:
    """
    Files with a line for each report, thinned by age. The index copies the files.

    `latest` is the newest value of each metric, with its step. `recent` are the last of the `total`
    reports since the process began.
    """

    def __init__(self, run: str, directory: Path, index: Index) -> None:
        self.latest: dict[str, tuple[float, int]] = {}
        self.recent: deque[Report] = deque(maxlen=_RECENT)
        self.total = 0
        self._run = run
        self._files = MetricsFiles(directory)
        self._index = index
        self._adding = asyncio.Lock()
        last = 0
        try:
            self._files.repair()
            last = self._files.last_time()
        except OSError as error:
            _log.warning("metrics of run %s cannot be read: %s", self._run, error)
        self._clock = ReportClock(last)

    async def add(self, points: Points) -> None:
        """
        Add points: name, step, value. Values that are not finite are left out.

        Reports that have become old are thinned, so this may take some hundredths of a second.
        """
        finite = [(name, step, value) for name, step, value in points if math.isfinite(value)]
        for name, step, value in finite:
            self.latest[name] = (value, step)
        if not finite:
            return
        async with self._adding:
            now = self._clock.now()
            self.recent.append((now, finite))
            self.total += 1
            try:
                self._files.append((now, finite))
            except OSError as error:
                _log.warning("metrics of run %s cannot be written: %s", self._run, error)
                return
            await self._index.read_metrics(self._run, self._files)
            await self._index.thin_metrics(self._run, self._files, now)

    async def load(self) -> None:
        """Load the newest values from the index and the files."""
        await self._index.read_metrics(self._run, self._files)
        self.latest = await self._index.latest_metrics(self._run)

    async def series(self, name: str, since: int) -> list[tuple[int, float, int]]:
        """Return the values of one metric from a step on: step, value, time in nanoseconds."""
        return await self._index.metric_series(self._run, name, since)
