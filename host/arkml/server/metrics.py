"""The metrics of one run: a file of all values, and the newest value of each."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from pathlib import Path

from arkml.server.index import Index

_log = logging.getLogger(__name__)

Points = list[tuple[str, int, float]]
"""Values of metrics: name, step, value."""

_NAME = "metrics.jsonl"
_MAX_LINE = 1 << 20


class RunMetrics:
    """
    A file with a line for each report: its time and its points. The index copies the file.

    `latest` is the newest value of each metric, with its step.
    """

    def __init__(self, run: str, directory: Path, index: Index) -> None:
        self.latest: dict[str, tuple[float, int]] = {}
        self._run = run
        self._path = directory / _NAME
        self._index = index
        self._cut_torn_line()

    def _cut_torn_line(self) -> None:
        try:
            with self._path.open("r+b") as file:
                start = max(0, file.seek(0, os.SEEK_END) - _MAX_LINE)
                file.seek(start)
                file.truncate(start + file.read().rfind(b"\n") + 1)
        except FileNotFoundError:
            return
        except OSError as error:
            _log.warning("metrics of run %s cannot be read: %s", self._run, error)

    async def add(self, points: Points) -> None:
        """Add points: name, step, value. Values that are not finite are left out."""
        finite = [(name, step, value) for name, step, value in points if math.isfinite(value)]
        for name, step, value in finite:
            self.latest[name] = (value, step)
        try:
            with self._path.open("a") as file:
                file.write(json.dumps([time.time_ns(), finite]) + "\n")
        except OSError as error:
            _log.warning("metrics of run %s cannot be written: %s", self._run, error)
            return
        await self._index.read_metrics(self._run, self._path)

    async def load(self) -> None:
        """Load the newest values, from what the index and the file have."""
        await self._index.read_metrics(self._run, self._path)
        self.latest = await self._index.latest_metrics(self._run)

    async def series(self, name: str, since: int) -> list[tuple[int, float, int]]:
        """Return the values of one metric from a step on: step, value, time in nanoseconds."""
        return await self._index.metric_series(self._run, name, since)
