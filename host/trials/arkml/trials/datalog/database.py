"""The SQLite file of the log: its tables, and checked connections to it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final, Literal

from arkml.base.files import lock_file
from arkml.base.sqlite_files import SIDE_FILES, foreign_beside
from arkml.trials.core.error import TrialError
from arkml.trials.core.outputs import EntryKind

FILE: Final = "trials.sqlite"
VERSION: Final = 1
"""Version of the tables."""

STATE: Final = "state"
"""Kind of an entry that notes a new state of the trial, such as "RUNNING"."""

KINDS: Final[dict[str, int]] = {
    EntryKind.OBSERVATIONS: 1,
    EntryKind.ACTION: 2,
    EntryKind.REWARD: 3,
    EntryKind.MESSAGE: 4,
    EntryKind.EVENT: 5,
    STATE: 6,
}
"""Number of each kind of entry in the file."""

MOST_VALUE: Final = 256 << 20
"""Maximum size of one value in bytes; a file with a larger one is refused."""

FAILURES: Final = (sqlite3.Error, OSError, UnicodeDecodeError)
"""Errors of an unusable file. UnicodeDecodeError is one: SQLite may quote bytes in a message."""

_LOCK = "trials.lock"
_APPLICATION = 0x61726B74  # "arkt"
_SCHEMA = (
    "CREATE TABLE trials (number INTEGER PRIMARY KEY, id TEXT NOT NULL, user_id TEXT NOT NULL,"
    " state INTEGER NOT NULL, began_ns INTEGER NOT NULL, ended_ns INTEGER,"
    " reason TEXT NOT NULL DEFAULT '', is_removed INTEGER NOT NULL DEFAULT 0,"
    " params BLOB NOT NULL)",
    "CREATE INDEX trials_by_id ON trials (id)",
    "CREATE INDEX removed_trials ON trials (number) WHERE is_removed",
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, trial INTEGER NOT NULL,"
    " kind INTEGER NOT NULL, tick INTEGER NOT NULL, timestamp INTEGER NOT NULL,"
    " name TEXT NOT NULL, sender TEXT NOT NULL, content BLOB NOT NULL, note TEXT NOT NULL,"
    " origin TEXT NOT NULL DEFAULT '')",
    "CREATE INDEX entries_by_tick ON entries (trial, tick)",
)
_PROBLEMS = {
    sqlite3.SQLITE_FULL: "its disk is full",
    sqlite3.SQLITE_IOERR: "its disk is full, or fails",
    sqlite3.SQLITE_READONLY: "it cannot be written",
    sqlite3.SQLITE_PERM: "it cannot be written",
    sqlite3.SQLITE_BUSY: "another process has locked it",
    sqlite3.SQLITE_LOCKED: "another process has locked it",
    sqlite3.SQLITE_CORRUPT: "it is damaged",
    sqlite3.SQLITE_NOTADB: "it is not a log of trials",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_TOOBIG: "it holds a value that is too large",
}


def problem(path: Path, error: Exception) -> str:
    """Return a sentence about an error of SQLite or the operating system with the log's file."""
    if isinstance(error, OSError):
        return f"the log of trials {path} cannot be used: {error.strerror or error}"
    if isinstance(error, UnicodeDecodeError):
        return f"the log of trials {path} cannot be used: it is damaged"
    code = getattr(error, "sqlite_errorcode", None)
    known = None if code is None else _PROBLEMS.get(code & 0xFF)
    text = str(error) if known is None else f"{known} ({error})"
    return f"the log of trials {path} cannot be used: {text}"


def lock(directory: Path) -> int:
    """
    Create a directory for a server's log, and lock it until the returned descriptor is closed.

    Raises TrialError if it cannot be created, or another server has locked it.
    """
    path = directory / _LOCK
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return lock_file(path)
    except BlockingIOError:
        raise TrialError(f"the directory {directory} is in use by another server") from None
    except OSError as error:
        raise TrialError(problem(Path(error.filename or directory), error)) from None


def create(path: Path) -> None:
    """
    Create the file of a log, readable by its owner alone, if it does not exist.

    Raises TrialError.
    """
    new = path.with_name(f".{path.name}.new")
    try:
        if path.exists():
            return
        for end in ("", *SIDE_FILES):  # a process that was killed may have left them
            new.with_name(new.name + end).unlink(missing_ok=True)
        os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(new, isolation_level=None)
        try:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        finally:
            connection.close()
        new.replace(path)
    except FAILURES as error:
        raise TrialError(problem(path, error)) from None


def connect(path: Path, mode: Literal["ro", "rw"], timeout: float) -> sqlite3.Connection:
    """
    Open a file that has exactly the tables of a log.

    A log is always in SQLite's WAL mode. The file is refused if side files lie beside it that do
    not belong to a log in this mode: they could make SQLite delete a file elsewhere, or wait for
    ever.

    Args:
        path: The file, which must exist.
        mode: "ro" to read, "rw" to write as well.
        timeout: Seconds to wait for a lock of another connection.

    Returns:
        A connection in autocommit mode, usable by one thread at a time.

    Raises:
        TrialError: The file is missing, is not a log of this version, or lies beside a file that
            does not belong to a log.
        sqlite3.Error: The file cannot be read; see FAILURES for further errors.

    """
    if not path.is_file():
        raise TrialError(f"there is no log of trials at {path}")
    file = path.resolve()  # beside it, not beside a link to it, SQLite looks for other files
    if foreign := foreign_beside(file):
        raise TrialError(
            f"{foreign[0]} does not belong to a log of trials, so {path.name} is not opened:"
            " remove it"
        )
    connection = sqlite3.connect(
        f"{file.as_uri()}?mode={mode}",
        uri=True,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_VALUE)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        _check(path, connection)
        if mode == "rw":
            connection.execute("PRAGMA journal_mode = WAL")  # as it was made, unless changed
    except BaseException:
        connection.close()
        raise
    return connection


def _check(path: Path, connection: sqlite3.Connection) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application != _APPLICATION:
        raise TrialError(f"{path} is not a log of trials")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        raise TrialError(
            f"{path} is a log of trials of version {version}: this arkml reads version {VERSION}"
        )
    tables = connection.execute("SELECT sql FROM sqlite_master LIMIT 100").fetchall()
    if {text for (text,) in tables} != set(_SCHEMA):
        raise TrialError(f"{path} is not a log of trials: its tables are others")
