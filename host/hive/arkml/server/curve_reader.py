"""Curves of a run for charts, thinned by SQLite in a thread of their own."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from arkml.errors import HiveRefused
from arkml.hive.protocol.page_messages import CurvesQuery, ThinnedCurve
from arkml.hive.protocol.result_messages import SeriesPoint
from arkml.hive.protocol.wire import compact_json
from arkml.server.metrics_store import read_store

MAX_CURVES = 256

_FIND = "SELECT id FROM metrics WHERE name = ?"
_SPAN = (
    "SELECT count(*), min(value), max(value), min({axis}), max({axis}) FROM series"
    " WHERE metric = ? AND wall_ns > ?"
)
_ALL = "SELECT step, value, wall_ns FROM series WHERE metric = ? AND wall_ns > ? ORDER BY wall_ns"
_LAST = (
    "SELECT step, value, wall_ns FROM series WHERE metric = ? AND wall_ns > ?"
    " ORDER BY wall_ns DESC LIMIT 1"
)
# SQLite documents that the columns beside min() and max() come from the row that has it.
_THINNED = (
    "SELECT step, value, wall_ns FROM ("
    "SELECT step, {extreme}(value) AS value, wall_ns FROM series"
    " WHERE metric = ? AND wall_ns > ? GROUP BY ({axis} - ?) / ?)"
)
_AXES = {"rows": "step", "updates": "step", "time": "wall_ns"}


def read_names(text: str) -> list[str]:
    """
    Return the names in a query: separated by commas, or a JSON list of texts.

    Raises HiveRefused for another JSON value, and for more than MAX_CURVES names.
    """
    names: object = text.split(",") if text else []
    if text.startswith("["):
        try:
            names = json.loads(text)
            compact_json(names)  # SQLite takes no halves of surrogate pairs
        except (ValueError, RecursionError):
            names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise HiveRefused(f"names is {text[:80]!r}: it takes names, or a JSON list of them", 422)
    if len(names) > MAX_CURVES:
        raise HiveRefused(f"{len(names)} names at once: {MAX_CURVES} at most", 422)
    return names


class CurveReader:
    """
    A reader of the metrics of runs, with a thread and connections to SQLite of its own.

    A chart of many values therefore delays neither the event loop nor the thread that adds metrics.
    """

    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(1, "arkml-curves")

    async def read(self, run: Path, names: Sequence[str], query: CurvesQuery) -> list[ThinnedCurve]:
        """
        Return curves of a run's metrics, thinned as a request asks.

        Args:
            run: The directory of the run.
            names: The names of the metrics.
            query: The axis, the number of points and the start of the curves.

        Returns:
            A curve for each name.

        Raises:
            sqlite3.Error: The store of the run cannot be read.

        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, self._read_all, run, names, query)

    def close(self) -> None:
        """End the thread."""
        self._worker.shutdown(wait=False)

    def _read_all(self, run: Path, names: Sequence[str], query: CurvesQuery) -> list[ThinnedCurve]:
        try:
            opened = read_store(run)
        except OSError:  # there are no metrics yet, or what is there was logged when it was loaded
            return [ThinnedCurve(name, []) for name in names]
        with opened as connection:
            return [self._read(connection, name, query) for name in names]

    def _read(self, connection: sqlite3.Connection, name: str, query: CurvesQuery) -> ThinnedCurve:
        found = connection.execute(_FIND, (name,)).fetchone()
        if found is None:
            return ThinnedCurve(name, [])
        axis, key = _AXES[query.x], (found[0], query.since)
        count, lowest, highest, first, last = connection.execute(
            _SPAN.format(axis=axis), key
        ).fetchone()
        if count <= query.points:
            rows = connection.execute(_ALL, key).fetchall()
        else:
            # Two points of each part, in a whole number of parts, and the last point.
            width = (last - first) // max(1, (query.points - 1) // 2) + 1
            wanted = (*key, first, width)
            points = set(connection.execute(_LAST, key).fetchall())
            for extreme in ("min", "max"):
                statement = _THINNED.format(extreme=extreme, axis=axis)
                points.update(connection.execute(statement, wanted).fetchall())
            rows = sorted(points, key=lambda point: int(point[2]))
        return ThinnedCurve(name, [SeriesPoint(*row) for row in rows], lowest, highest)
