"""The metrics of one run: the newest of each, and a file of all of them."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Iterable
from pathlib import Path

from arkml.server.index import Index

_log = logging.getLogger(__name__)

_NAME = "metrics.jsonl"
_LONGEST_LINE = 1 << 20


class Measurements:
    """
    Metrics as lines of a file, one for each report: when, and the points. The index follows it.

    `latest` is the newest value of each metric with its step.
    """

    def __init__(self, run: str, directory: Path, index: Index) -> None:
        self.latest: dict[str, tuple[float, int]] = {}
        self._run = run
        self._path = directory / _NAME
        self._index = index
        self._end_torn_line()

    def _end_torn_line(self) -> None:
        try:
            with self._path.open("r+b") as file:
                start = max(0, file.seek(0, os.SEEK_END) - _LONGEST_LINE)
                file.seek(start)
                file.truncate(start + file.read().rfind(b"\n") + 1)
        except FileNotFoundError:
            return
        except OSError as error:
            _log.warning("metrics of run %s cannot be read: %s", self._run, error)

    async def add(self, points: Iterable[tuple[str, int, float]]) -> None:
        """Take points: name, step, value. What is not finite is left out."""
        finite = [(n, s, v) for n, s, v in points if math.isfinite(v)]
        for name, step, value in finite:
            self.latest[name] = (value, step)
        try:
            with self._path.open("a") as file:
                file.write(json.dumps([time.time_ns(), finite]) + "\n")
        except OSError as error:
            _log.warning("metrics of run %s are not kept: %s", self._run, error)
            return
        await self._index.catch_up(self._run, self._path)

    async def catch_up(self) -> None:
        """Let the index read what it has not, and take over what is newest."""
        await self._index.catch_up(self._run, self._path)
        self.latest = await self._index.latest(self._run)

    async def series(self, name: str, since: int) -> list[tuple[int, float, int]]:
        """The values of one metric from a step on: step, value, when."""
        return await self._index.series(self._run, name, since)
