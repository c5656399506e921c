"""The metrics of one run: the newest of each, and a file of all of them."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterable
from pathlib import Path

from arkml.server.index import Index, parsed

_log = logging.getLogger(__name__)

_NAME = "metrics.jsonl"


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
        for line in self._lines():
            for name, step, value, _ in parsed(line):
                self.latest[name] = (value, step)

    def _lines(self) -> list[bytes]:
        try:
            return self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return []

    def _end_torn_line(self) -> None:
        try:
            with self._path.open("r+b") as file:
                data = file.read()
                file.truncate(data.rfind(b"\n") + 1)
        except FileNotFoundError:
            return

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
        """Let the index read what it has not."""
        await self._index.catch_up(self._run, self._path)

    async def series(self, name: str, since: int) -> list[tuple[int, float, int]]:
        """The values of one metric from a step on: step, value, when."""
        return await self._index.series(self._run, name, since)
