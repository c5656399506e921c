"""The index of all runs in SQLite: a copy of their metrics and status for fast queries."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import sqlite3
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

_log = logging.getLogger(__name__)

T = TypeVar("T")

Point = tuple[str, int, float, int]
"""A value of a metric: name, step, value, and its time in nanoseconds since the Unix epoch."""

_SCHEMA = """
    CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, name TEXT, game TEXT, status TEXT,
        started_at INTEGER, read INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE IF NOT EXISTS series (run TEXT, name TEXT, step INTEGER, value REAL,
        wall_ns INTEGER);
    CREATE INDEX IF NOT EXISTS series_by_name ON series (run, name, step);
"""
_MAX_INTEGER = (1 << 63) - 1
_FILES = ("", "-wal", "-shm")


class Index:
    """
    A database with a table of runs, and one of the points in their metrics files.

    A damaged database is replaced by an empty one, since the directories of the runs hold
    everything that is in it. One thread does all work.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._worker = ThreadPoolExecutor(1, "arkml-index")
        self._connection = self._worker.submit(self._open).result()

    def _open(self) -> sqlite3.Connection:
        try:
            return _connect(self._path)
        except sqlite3.DatabaseError as error:
            _log.warning("%s is replaced: %s", self._path, error)
            for suffix in _FILES:
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            return _connect(self._path)

    async def put_run(self, run: str, name: str, game: str, status: str, started_at: int) -> None:
        """Insert a run, or update its status."""
        statement = (
            "INSERT INTO runs (id, name, game, status, started_at) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET status = excluded.status"
        )
        values = (run, name, game, status, started_at)
        await self._try(lambda: self._write([(statement, [values])]))

    async def read_metrics(self, run: str, points: Path) -> None:
        """Add the lines of a run's metrics file that were not read before."""
        await self._try(lambda: self._read(run, points))

    async def metric_series(self, run: str, name: str, since: int) -> list[tuple[int, float, int]]:
        """Return the values of one metric from a step on. Raises sqlite3.Error."""
        statement = (
            "SELECT step, value, wall_ns FROM series WHERE run = ? AND name = ? AND step >= ?"
            " ORDER BY rowid"
        )
        values = (run, name, since)
        return await self._do(lambda: self._connection.execute(statement, values).fetchall())

    async def delete_run(self, run: str) -> None:
        """Delete a run and its metrics."""
        await self._try(
            lambda: self._write(
                [
                    ("DELETE FROM series WHERE run = ?", [(run,)]),
                    ("DELETE FROM runs WHERE id = ?", [(run,)]),
                ]
            )
        )

    def close(self) -> None:
        """Close the database and end the thread."""
        self._worker.submit(self._connection.close).result()
        self._worker.shutdown()

    async def latest_metrics(self, run: str) -> dict[str, tuple[float, int]]:
        """Return the newest value of each metric, with its step."""
        statement = (
            "SELECT name, value, step FROM series WHERE rowid IN"
            " (SELECT max(rowid) FROM series WHERE run = ? GROUP BY name)"
        )
        rows: list[tuple[str, float, int]] = []
        await self._try(lambda: rows.extend(self._connection.execute(statement, (run,)).fetchall()))
        return {name: (value, step) for name, value, step in rows}

    async def _try(self, work: Callable[[], None]) -> None:
        """Do work whose failure is only logged: a later reading makes up for it."""
        try:
            await self._do(work)
        except (sqlite3.Error, OSError) as error:
            _log.warning("the index %s could not be updated: %s", self._path, error)

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    def _write(self, statements: Iterable[tuple[str, list[Any]]]) -> None:
        with self._connection:
            for statement, values in statements:
                self._connection.executemany(statement, values)

    def _read(self, run: str, points: Path) -> None:
        known = self._connection.execute("SELECT read FROM runs WHERE id = ?", (run,)).fetchone()
        start = known[0] if known else 0
        try:
            with points.open("rb") as file:
                if start > file.seek(0, os.SEEK_END):  # the file was replaced
                    self._write([("DELETE FROM series WHERE run = ?", [(run,)])])
                    start = 0
                file.seek(start)
                data = file.read()
        except FileNotFoundError:
            return
        data = data[: data.rfind(b"\n") + 1]
        if not data:
            return
        rows = [(run, *point) for line in data.splitlines() for point in _parse_line(line)]
        self._write(
            [
                ("INSERT INTO series VALUES (?, ?, ?, ?, ?)", rows),
                ("UPDATE runs SET read = ? WHERE id = ?", [(start + len(data), run)]),
            ]
        )


def _parse_line(line: bytes) -> list[Point]:
    """Return the points in a line of a metrics file, none if it is damaged."""
    try:
        when, points = json.loads(line)
        values = [(str(name), int(step), float(value), int(when)) for name, step, value in points]
        "".join(name for name, *_ in values).encode()
    except (ValueError, TypeError, OverflowError, RecursionError):
        return []
    return [
        one for one in values if math.isfinite(one[2]) and max(map(abs, one[1::2])) <= _MAX_INTEGER
    ]


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.executescript(_SCHEMA)
        connection.execute("SELECT id, name, game, status, started_at, read FROM runs").fetchone()
        connection.execute("SELECT run, name, step, value, wall_ns FROM series").fetchone()
        _check(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection) -> None:
    result = connection.execute("PRAGMA quick_check").fetchone()[0]
    if result != "ok":
        raise sqlite3.DatabaseError(result)
