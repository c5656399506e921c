"""The metrics of one run: its store, and the newest value of each."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable

from arkml.base.loggers import SafeLogger
from arkml.hive.protocol.reports import Point, Report, ReportClock
from arkml.hive.protocol.result_messages import EvaluationReport
from arkml.server.best_policy import mean, standard_deviation
from arkml.server.metrics_store import MetricsStore, is_storable

_log = SafeLogger(__name__)

Points = list[Point]
"""Values of metrics: name, step, value."""

_RECENT = 64


_MAX_UNRECORDED = 1_000


def evaluation_points(report: EvaluationReport, rows: int) -> Points:
    """
    Return the metrics of an evaluation, such as "eval/mean_reward", as (name, step, value).

    The step is the number of rows that the run had when the evaluated version was chosen; `rows` is
    the number that it has now.
    """
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
    Metrics of the server that wait for the learner to write them to its event files.

    `send` returns False while there is no learner; the newest of the unsent points are kept for the
    next learner.
    """

    def __init__(self, send: Callable[..., bool]) -> None:
        self._send = send
        self._waiting: deque[Points] = deque(maxlen=_MAX_UNRECORDED)

    def add(self, points: Points) -> None:
        """Send metrics to the learner, or keep them until there is one."""
        self._waiting.append(points)
        self.send()

    def send(self) -> None:
        """Send the metrics that wait, as long as the learner takes them."""
        while self._waiting and self._send("record", points=self._waiting[0]):
            self._waiting.popleft()


class RunMetrics:
    """
    The metrics of a run in its store.

    Attributes:
        latest: The newest value of each metric by its name, with its step.
        recent: The newest reports since the process began.
        total: The number of all reports since then.
        seen: The state of the run's rules, after all earlier reports, as `load` has read it.

    """

    def __init__(self, run: str, store: MetricsStore) -> None:
        self.latest: dict[str, tuple[float, int]] = {}
        self.recent: deque[Report] = deque(maxlen=_RECENT)
        self.total = 0
        self.seen = b""
        self._run = run
        self._store = store
        self._clock: ReportClock | None = None
        self._adding = asyncio.Lock()

    async def add(self, points: Points, seen: bytes = b"") -> None:
        """
        Add a report of metrics, each a name, a step and a value.

        Metrics that no store accepts are left out (see `is_storable`). Old reports are thinned, so
        this may take some hundredths of a second.

        Args:
            points: The metrics.
            seen: The state of the run's rules after this report, to be stored with it.

        """
        kept = [(name, step, float(value)) for name, step, value in filter(is_storable, points)]
        for name, step, value in kept:
            self.latest[name] = (value, step)
        if not kept and not seen:
            return
        async with self._adding:
            if self._clock is None:
                await self._load({})
            assert self._clock is not None
            now = self._clock.now()
            if kept:
                self.recent.append((now, kept))
                self.total += 1
            try:
                await self._store.do(self._add, (now, kept), seen)
            except (OSError, sqlite3.Error) as error:
                _log.warning("metrics of run %s cannot be written: %s", self._run, error)

    async def load(self) -> None:
        """Load the newest values from the store, and close the store."""
        async with self._adding:
            await self._load(self.latest)
            await self.close()

    async def series(self, name: str, since: int) -> list[tuple[int, float, int]]:
        """
        Return the values of one metric from a step on: step, value, time in nanoseconds.

        Raises sqlite3.Error.
        """
        try:
            return await self._store.do(self._store.series, name, since)
        except OSError as error:
            _log.warning("metrics of run %s cannot be read: %s", self._run, error)
            return []

    async def close(self) -> None:
        """Close the store until it is used again."""
        await self._store.rest()

    async def _load(self, latest: dict[str, tuple[float, int]]) -> None:
        last = 0
        try:
            for name, (value, step, at) in (await self._store.do(self._store.latest)).items():
                latest[name], last = (value, step), max(last, at)
            self.seen = await self._store.do(self._store.seen)
        except (OSError, sqlite3.Error) as error:
            _log.warning("metrics of run %s cannot be read: %s", self._run, error)
        self._clock = ReportClock(last)

    def _add(self, report: Report, seen: bytes) -> None:
        self._store.add([report], seen)
        self._store.thin(report[0])
