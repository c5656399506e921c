"""The metrics of one run: files of all values, and the newest value of each."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from pathlib import Path

from arkml.hive.protocol.reports import Point, Report, ReportClock
from arkml.server.index import Index
from arkml.server.metrics_files import MetricsFiles

_log = logging.getLogger(__name__)

Points = list[Point]
"""Values of metrics: name, step, value."""

_RECENT = 64


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
        """Load the newest values, from what the index and the files have."""
        await self._index.read_metrics(self._run, self._files)
        self.latest = await self._index.latest_metrics(self._run)

    async def series(self, name: str, since: int) -> list[tuple[int, float, int]]:
        """Return the values of one metric from a step on: step, value, time in nanoseconds."""
        return await self._index.metric_series(self._run, name, since)
