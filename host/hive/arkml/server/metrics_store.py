"""The store of one run's metrics and histograms: a database in its directory, thinned by age."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import closing, suppress
from functools import cache, partial
from itertools import product
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from arkml.base.files import open_file
from arkml.base.loggers import SafeLogger
from arkml.base.sqlite_files import foreign_beside
from arkml.hive.protocol.histograms import Histogram, HistogramPoints, thin_histograms
from arkml.hive.protocol.reports import DAY, HOUR, MINUTE, OLD_INTERVAL, Point, Report
from arkml.hive.protocol.wire import MAX_COUNT

_log = SafeLogger(__name__)

T = TypeVar("T")

STORE_NAME = "metrics.sqlite"
WAL_NAME = f"{STORE_NAME}-wal"
"""The files that SQLite keeps beside it: what was written since its last checkpoint, and locks."""

_DAMAGED_NAME, _NEW_NAME = "metrics.damaged.sqlite", ".metrics.new.sqlite"
_SUFFIXES = ("", "-wal", "-shm")

_TABLES = {
    "metrics": "id, name",
    "series": "metric, wall_ns, step, value",
    "histograms": "wall_ns, step, bins",
    "thinned": "interval, until",
    "watch": "id, seen",
}
_ENTRIES = "SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT 100"
_SCHEMA = """
    CREATE TABLE IF NOT EXISTS metrics (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
    CREATE TABLE IF NOT EXISTS series (metric INTEGER NOT NULL, wall_ns INTEGER NOT NULL,
        step INTEGER NOT NULL CHECK (typeof(step) = 'integer'),
        value REAL NOT NULL CHECK (typeof(value) = 'real'),
        PRIMARY KEY (metric, wall_ns)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS histograms (wall_ns INTEGER PRIMARY KEY,
        step INTEGER NOT NULL CHECK (typeof(step) = 'integer'), bins BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS thinned (interval INTEGER PRIMARY KEY, until INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS watch (id INTEGER PRIMARY KEY CHECK (id = 0), seen BLOB NOT NULL);
"""

_LATEST = (
    "SELECT name, value, step, wall_ns FROM metrics CROSS JOIN series ON metric = id AND wall_ns ="
    " (SELECT max(wall_ns) FROM series WHERE metric = id)"
)
_SERIES = (
    "SELECT step, value, wall_ns FROM series WHERE step >= ? AND metric ="
    " (SELECT id FROM metrics WHERE name = ?) ORDER BY wall_ns"
)
_CURVES = "SELECT name, step, value FROM metrics JOIN series ON metric = id ORDER BY id, wall_ns"
_SEEN = f"SELECT seen FROM watch WHERE typeof(seen) = 'blob' AND length(seen) <= {64 << 10}"
_HISTOGRAMS = "SELECT wall_ns, step, bins FROM histograms ORDER BY wall_ns"

_THIN = """
    WITH part AS (SELECT wall_ns, value, wall_ns / :interval AS slot FROM series
            WHERE metric = :metric AND wall_ns >= :begin AND wall_ns < :end),
        slots AS (SELECT slot, min(value) AS low, max(value) AS high, max(wall_ns) AS last
            FROM part GROUP BY slot)
    DELETE FROM series WHERE metric = :metric AND wall_ns >= :begin AND wall_ns < :end
        AND wall_ns NOT IN (SELECT last FROM slots
            UNION SELECT min(wall_ns) FROM part JOIN slots USING (slot)
                WHERE value = low AND low < high GROUP BY slot
            UNION SELECT min(wall_ns) FROM part JOIN slots USING (slot)
                WHERE value = high AND low < high GROUP BY slot)
"""
"""Keeps the lowest, the highest and the last value of each interval, and the last of equal ones."""

_AGES = ((DAY, 2 * HOUR, OLD_INTERVAL, 2 * HOUR), (HOUR, 10 * MINUTE, MINUTE, 10 * MINUTE))
"""The age beyond which reports are thinned, how much later at most, and the intervals then."""

_PRIMARY = 0xFF
"""The bits of an error code of SQLite that all errors of its kind have."""

_OF_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)

_BINS = msgspec.json.Decoder(list[Histogram])


def is_storable(point: Point) -> bool:
    """
    Return whether a store accepts a metric: a name, a step and a value.

    The name must be valid Unicode, the step must fit MAX_COUNT, and the value must be finite.
    """
    name, step, value = point
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return isfinite(value) and abs(step) <= MAX_COUNT


class MetricsStore:
    """
    The database `metrics.sqlite` in the directory of a run.

    A report that was added outlives every process; a power failure may lose the reports since
    SQLite's last checkpoint. Reports are kept as they are for an hour. After that, the lowest, the
    highest and the last value of each metric are kept for each minute, and after a day for each
    forty minutes. Histograms are added up, over ten minutes and later over two hours. A damaged
    database is kept beside its replacement, which gets all that can still be read.

    The first use opens the database, and `close` closes it until the next use. One thread at a time
    uses a store; `do` and `rest` use it in `thread`. All methods raise sqlite3.Error and OSError.
    """

    def __init__(self, directory: Path, thread: Executor | None = None) -> None:
        self._path = directory / STORE_NAME
        self._thread = thread
        self._connection: sqlite3.Connection | None = None
        self._is_used = False  # since the last `rest`, by what may still wait for the thread

    async def do(self, work: Callable[..., T], *values: Any) -> T:
        """Call a function that uses the store, in its thread."""
        self._is_used = True
        return await self._in_thread(work, *values)

    async def rest(self) -> None:
        """Close the database, after all calls of `do` that were made before."""
        if not self._is_used:
            return
        self._is_used = False
        try:
            await self._in_thread(self.close)
        except BaseException:
            self._is_used = True
            raise

    async def _in_thread(self, work: Callable[..., T], *values: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *values)

    def add(self, reports: Iterable[Report], seen: bytes = b"") -> None:
        """
        Add reports of metrics; a report replaces an earlier one of the same time.

        `seen` is the state of the run's rules after these reports, and replaces the stored one.
        """
        self._write(partial(_insert, reports, seen))

    def seen(self) -> bytes:
        """Return the stored state of the run's rules as bytes, empty before any report."""
        return next((seen for (seen,) in self._read(_SEEN)), b"")

    def add_histograms(self, reports: Iterable[tuple[int, HistogramPoints]]) -> None:
        """Add reports of histograms; a report replaces an earlier one of the same time."""
        self._write(partial(_insert_histograms, reports))

    def thin(self, now: int) -> None:
        """
        Thin the reports of metrics and histograms that have become old.

        `now` is the present time, in nanoseconds since the Unix epoch.
        """
        self._write(partial(_thin_due, now))

    def latest(self) -> dict[str, tuple[float, int, int]]:
        """Return the newest value of each metric by its name: value, step, time in nanoseconds."""
        return {name: (value, *rest) for name, value, *rest in self._read(_LATEST)}

    def series(self, name: str, since: int) -> list[tuple[int, float, int]]:
        """
        Return the values of a metric from the step `since` on: step, value, time in nanoseconds.
        """
        return self._read(_SERIES, (since, name))

    def histograms(self) -> Iterator[tuple[int, HistogramPoints]]:
        """Yield the reports of histograms, the oldest first, without damaged ones."""
        return _parsed(self._read(_HISTOGRAMS))

    def last_histograms(self) -> int:
        """Return the time of the last report of histograms in nanoseconds, 0 without any."""
        return max(
            (at for (at,) in self._read("SELECT max(wall_ns) FROM histograms") if at), default=0
        )

    def close(self) -> None:
        """Close the database, if it is open."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    def _read(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """Return the rows of a query; none as long as nothing was added."""
        if self._connection is None and not os.path.lexists(self._path):
            return []
        return self._use(lambda connection: connection.execute(statement, values).fetchall())

    def _write(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Do all of some work, or nothing."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            try:
                work(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

        self._use(write)

    def _use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return work(self._opened())
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & _PRIMARY not in _OF_DAMAGE:
                raise
            _log.warning("%s is replaced by what can be read of it: %s", self._path, error)
        self.close()
        _salvage(self._path)
        return work(self._opened())

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            _require_plain(self._path)
            try:
                self._connection = _connect(self._path)
            except _ForeignTables:
                _log.warning("%s has foreign tables: it is set aside unread", self._path)
                _set_aside(self._path)
                self._connection = _connect(self._path)
        return self._connection


def read_store(directory: Path) -> closing[sqlite3.Connection]:
    """
    Return a read-only connection to the database of a run, which others may write meanwhile.

    In a directory that cannot be written to, it reads the state of SQLite's last checkpoint. Raises
    FileNotFoundError for a run without metrics, sqlite3.Error and OSError.
    """
    path = directory / STORE_NAME
    if not os.path.lexists(path):
        raise FileNotFoundError(path)
    _require_plain(path)
    uri = path.absolute().as_uri()
    for mode in ("mode=rw", "mode=ro&immutable=1"):
        connection = sqlite3.connect(f"{uri}?{mode}", uri=True, isolation_level=None)
        try:
            connection.execute("PRAGMA query_only = 1")
            _require_ours(connection)
            connection.execute("SELECT id FROM metrics LIMIT 1").fetchone()
        except sqlite3.Error:
            connection.close()
            if "immutable" in mode:
                raise
        else:
            break
    return closing(connection)


def read_curves(directory: Path) -> dict[str, list[tuple[float, float]]]:
    """
    Return all metrics of a run by name, each as (rows of the run, value) pairs.

    Raises sqlite3.Error and OSError.
    """
    try:
        opened = read_store(directory)
    except FileNotFoundError:
        return {}
    curves: dict[str, list[tuple[float, float]]] = {}
    with opened as connection:
        for name, step, value in connection.execute(_CURVES):
            curves.setdefault(name, []).append((float(step), value))
    return curves


def _connect(path: Path) -> sqlite3.Connection:
    # Threads take turns; explicit transactions.
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        _require_ours(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.executescript(_SCHEMA)
        for table, columns in _TABLES.items():
            connection.execute(f"SELECT {columns} FROM {table} LIMIT 1").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _require_plain(path: Path) -> None:
    """
    Raise OSError unless it is a plain file: SQLite would wait for a pipe, and follow a link.

    So must the files beside it be, and there must be no rollback journal: SQLite deletes the file
    that one names.
    """
    with suppress(FileNotFoundError):
        open_file(path, follow=False).close()
    for beside in foreign_beside(path):
        raise OSError(f"{beside} is no file of this hive: remove it")


class _ForeignTables(sqlite3.DatabaseError):
    """A database with other tables than a store has."""


@cache
def _tables() -> frozenset[tuple[Any, ...]]:
    """Return the entries of the schema of a store."""
    with closing(sqlite3.connect(":memory:")) as made:
        made.executescript(_SCHEMA)
        return frozenset(made.execute(_ENTRIES))


def _require_ours(connection: sqlite3.Connection) -> None:
    """Raise _ForeignTables before a view in the place of a table is read, which may never end."""
    if not frozenset(connection.execute(_ENTRIES)) <= _tables():
        raise _ForeignTables("the database has foreign tables")


def _set_aside(path: Path) -> None:
    """Rename a database and the files beside it, so that a new one begins."""
    damaged = path.with_name(_DAMAGED_NAME)
    for suffix in _SUFFIXES:
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).replace(damaged.with_name(damaged.name + suffix))


def _salvage(path: Path) -> None:
    """Replace a damaged database by one with the rows that can be read, from both of its ends."""
    new = path.with_name(_NEW_NAME)
    for suffix in _SUFFIXES:
        new.with_name(new.name + suffix).unlink(missing_ok=True)
    with closing(_connect(new)) as made, closing(sqlite3.connect(path)) as old:
        made.execute("BEGIN")
        for (table, columns), order in product(_readable_tables(old), ("ASC", "DESC")):
            key = ", ".join(f"{one} {order}" for one in columns.split(", ")[:2])
            into = f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({_marks(columns)})"
            made.executemany(into, _readable(old, f"SELECT {columns} FROM {table} ORDER BY {key}"))
        made.execute("COMMIT")
    _set_aside(path)
    new.replace(path)


def _readable_tables(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return the tables of a damaged store and their columns; none if it is no store."""
    try:
        _require_ours(connection)
    except sqlite3.DatabaseError:
        return []
    return list(_TABLES.items())


def _readable(connection: sqlite3.Connection, statement: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query up to the first that cannot be read."""
    with suppress(sqlite3.DatabaseError):
        yield from connection.execute(statement)


def _marks(columns: str) -> str:
    return ", ".join("?" for _ in columns.split(", "))


def _insert(reports: Iterable[Report], seen: bytes, connection: sqlite3.Connection) -> None:
    if seen:
        connection.execute("INSERT OR REPLACE INTO watch VALUES (0, ?)", (seen,))
    for at, points in reports:
        names = [(name,) for name, *_ in points]
        connection.executemany("INSERT OR IGNORE INTO metrics (name) VALUES (?)", names)
        connection.executemany(
            "INSERT OR REPLACE INTO series SELECT id, ?, ?, ? FROM metrics WHERE name = ?",
            [(at, step, value, name) for name, step, value in points],
        )


def _insert_histograms(
    reports: Iterable[tuple[int, HistogramPoints]], connection: sqlite3.Connection
) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO histograms VALUES (?, ?, ?)",
        [(at, rows, msgspec.json.encode(made)) for at, (rows, made) in reports],
    )


def _thin_due(now: int, connection: sqlite3.Connection) -> None:
    known: dict[int, int] = dict(connection.execute("SELECT interval, until FROM thinned"))
    for age, slack, *intervals in _AGES:
        for interval, thin in zip(intervals, (_thin, _thin_histograms), strict=True):
            begin, end = known.get(interval, 0), (now - age) // interval * interval
            if end - begin >= slack:
                thin(connection, begin, end, interval)
                connection.execute("INSERT OR REPLACE INTO thinned VALUES (?, ?)", (interval, end))


def _thin(connection: sqlite3.Connection, begin: int, end: int, interval: int) -> None:
    part = {"begin": begin, "end": end, "interval": interval}
    metrics = connection.execute("SELECT id FROM metrics").fetchall()
    connection.executemany(_THIN, [{**part, "metric": metric} for (metric,) in metrics])


def _thin_histograms(connection: sqlite3.Connection, begin: int, end: int, interval: int) -> None:
    part = f"FROM histograms WHERE wall_ns >= {begin:d} AND wall_ns < {end:d}"
    found = connection.execute(f"SELECT {_TABLES['histograms']} {part} ORDER BY wall_ns").fetchall()
    connection.execute(f"DELETE {part}")
    _insert_histograms(thin_histograms(list(_parsed(found)), interval), connection)


def _parsed(rows: Iterable[tuple[int, int, bytes]]) -> Iterator[tuple[int, HistogramPoints]]:
    for at, step, bins in rows:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            yield at, (step, _BINS.decode(bins))
