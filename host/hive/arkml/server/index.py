"""The index of all runs in SQLite: a copy of their metrics and status for fast queries."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from arkml.base.loggers import SafeLogger
from arkml.hive.protocol.reports import Report
from arkml.server.metrics_files import MetricsFiles

_log = SafeLogger(__name__)

T = TypeVar("T")

_SCHEMA = """
    CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, name TEXT, game TEXT, status TEXT,
        started_at INTEGER, read INTEGER NOT NULL DEFAULT 0, first INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE IF NOT EXISTS metrics (id INTEGER PRIMARY KEY, run TEXT, name TEXT,
        UNIQUE (run, name));
    CREATE TABLE IF NOT EXISTS series (metric INTEGER, wall_ns INTEGER, step INTEGER, value REAL,
        PRIMARY KEY (metric, wall_ns)) WITHOUT ROWID;
"""
_COLUMNS = (
    "id, name, game, status, started_at, read, first FROM runs",
    "id, run, name FROM metrics",
    "metric, wall_ns, step, value FROM series",
)
_OF_RUN = "(SELECT id FROM metrics WHERE run = ?)"
_FILES = ("", "-wal", "-shm")
_PRIMARY = 0xFF
"""The bits of an error code of SQLite that all errors of its kind have."""

_UNWRITABLE = (
    sqlite3.SQLITE_IOERR_SHMOPEN,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_WRITE,
)


class Index:
    """
    A database with a table of runs, and a table of the points in their metrics files.

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
            if _is_unwritable(error):
                raise  # so would another one be
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

    async def read_metrics(self, run: str, files: MetricsFiles) -> None:
        """Add the reports of a run's files that were not read before."""
        await self._try(lambda: self._read(run, files))

    async def thin_metrics(self, run: str, files: MetricsFiles, now: int) -> None:
        """Thin the due reports in a run's files, and their copy here; `now` is in nanoseconds."""
        await self._try(lambda: self._thin(run, files, now))

    async def metric_series(self, run: str, name: str, since: int) -> list[tuple[int, float, int]]:
        """Return the values of one metric from a step on. Raises sqlite3.Error."""
        statement = (
            "SELECT step, value, wall_ns FROM series WHERE step >= ? AND metric ="
            " (SELECT id FROM metrics WHERE run = ? AND name = ?) ORDER BY wall_ns"
        )
        values = (since, run, name)
        return await self._do(lambda: self._connection.execute(statement, values).fetchall())

    async def delete_run(self, run: str) -> None:
        """Delete a run and its metrics."""
        await self._try(
            lambda: self._write(
                [
                    (f"DELETE FROM series WHERE metric IN {_OF_RUN}", [(run,)]),
                    ("DELETE FROM metrics WHERE run = ?", [(run,)]),
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
            "SELECT name, value, step FROM metrics JOIN series ON metric = id AND wall_ns ="
            " (SELECT max(wall_ns) FROM series WHERE metric = id) WHERE run = ?"
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

    def _read(self, run: str, files: MetricsFiles) -> None:
        select = "SELECT read, first FROM runs WHERE id = ?"
        start, known = self._connection.execute(select, (run,)).fetchone() or (0, 0)
        first = files.first_time()
        if first != known or start > files.size():  # the files were thinned or replaced meanwhile
            start = 0
            self._write([(f"DELETE FROM series WHERE metric IN {_OF_RUN}", [(run,)])])
            for reports in files.read_old():
                self._insert(run, reports)
        for reports, position in files.read_recent(start):
            self._insert(run, reports)
            self._note_read(run, position, first)

    def _thin(self, run: str, files: MetricsFiles, now: int) -> None:
        thinned = files.thin(now)
        if not thinned:
            return
        delete = f"DELETE FROM series WHERE metric IN {_OF_RUN} AND wall_ns BETWEEN ? AND ?"
        for one in thinned:
            self._write([(delete, [(run, one.begin, one.end)])])
            self._insert(run, one.reports)
        is_whole = not any(one.is_repeated for one in thinned)
        self._note_read(run, files.size(), files.first_time() if is_whole else 0)

    def _insert(self, run: str, reports: Sequence[Report]) -> None:
        names = {name for _, points in reports for name, _, _ in points}
        insert = "INSERT OR IGNORE INTO metrics (run, name) VALUES (?, ?)"
        with self._connection:
            self._connection.executemany(insert, [(run, name) for name in sorted(names)])
            ids = dict(
                self._connection.execute("SELECT name, id FROM metrics WHERE run = ?", (run,))
            )
            self._connection.executemany(
                "INSERT OR REPLACE INTO series VALUES (?, ?, ?, ?)",
                (
                    (ids[name], at, step, value)
                    for at, points in reports
                    for name, step, value in points
                ),
            )

    def _note_read(self, run: str, position: int, first: int) -> None:
        self._write(
            [("UPDATE runs SET read = ?, first = ? WHERE id = ?", [(position, first, run)])]
        )


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.executescript(_SCHEMA)
        for columns in _COLUMNS:
            connection.execute(f"SELECT {columns}").fetchone()
        _check(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_unwritable(error: sqlite3.DatabaseError) -> bool:
    """Return whether a disk that is full or read-only is the reason of an error, not damage."""
    code = error.sqlite_errorcode
    return code in _UNWRITABLE or code & _PRIMARY in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY)


def _check(connection: sqlite3.Connection) -> None:
    result = connection.execute("PRAGMA quick_check").fetchone()[0]
    if result != "ok":
        raise sqlite3.DatabaseError(result)
