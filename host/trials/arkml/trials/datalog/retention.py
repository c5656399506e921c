"""Removal of ended trials in small steps, so that writes never wait for it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from arkml.errors import UsageError

_TURN = 0.03  # seconds
_ENTRIES = 64
_PAGES = 64
_FREE: Final = 2_048
"""Free pages that a file keeps for later entries after a removal."""


@dataclass(frozen=True, slots=True)
class Retention:
    """
    The number of trials and bytes to keep. Beyond them, the trial that ended first is removed.

    Args:
        kept_trials: Maximum number of ended trials.
        most_bytes: Maximum size of all trials in bytes.

    Raises:
        UsageError: A number is not above 0.

    """

    kept_trials: int = 10_000
    most_bytes: int = 8 << 30

    def __post_init__(self) -> None:
        for name in ("kept_trials", "most_bytes"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}: it takes a number from 1")


def used_bytes(connection: sqlite3.Connection) -> int:
    """Return the number of bytes that the log's file uses. Raises sqlite3.Error."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def choose(connection: sqlite3.Connection, retention: Retention) -> bool:
    """
    Mark ended trials for removal if the log has too many of them, or too many bytes.

    If it has too many bytes, one trial at a time is marked. Returns False if the log is too large
    and has no ended trial left. Raises sqlite3.Error.
    """
    connection.execute(
        "UPDATE trials SET is_removed = 1 WHERE number IN (SELECT number FROM trials WHERE ended_ns"
        " IS NOT NULL AND NOT is_removed ORDER BY ended_ns DESC, number DESC LIMIT -1 OFFSET ?)",
        (retention.kept_trials,),
    )
    is_removing = connection.execute("SELECT 1 FROM trials WHERE is_removed LIMIT 1").fetchone()
    if is_removing or used_bytes(connection) <= retention.most_bytes:
        return True
    cursor = connection.execute(
        "UPDATE trials SET is_removed = 1 WHERE number = (SELECT number FROM trials WHERE ended_ns"
        " IS NOT NULL ORDER BY ended_ns, number LIMIT 1)"
    )
    return cursor.rowcount > 0


def mark(connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
    """Mark ended trials, given by number, for removal. Raises sqlite3.Error."""
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(
        "UPDATE trials SET is_removed = 1 WHERE number = ? AND ended_ns IS NOT NULL",
        [(number,) for number in numbers],
    )
    connection.execute("COMMIT")


def remove_some(connection: sqlite3.Connection) -> bool:
    """
    Remove some rows of the marked trials, and return free pages to the system.

    Takes some hundredths of a second. Returns True if more is left. Raises sqlite3.Error.
    """
    until = time.monotonic() + _TURN
    while time.monotonic() < until:
        marked = connection.execute("SELECT number FROM trials WHERE is_removed LIMIT 1").fetchone()
        if marked is None:
            return _shrink(connection, until)
        removed = connection.execute(
            "DELETE FROM entries WHERE number IN (SELECT number FROM entries WHERE trial = ?"
            f" LIMIT {_ENTRIES})",
            marked,
        )
        if not removed.rowcount:
            connection.execute("DELETE FROM trials WHERE number = ?", marked)
    return True


def _shrink(connection: sqlite3.Connection, until: float) -> bool:
    """Return free pages to the system; return True if too many are still free."""
    while connection.execute("PRAGMA freelist_count").fetchone()[0] > _FREE:
        if time.monotonic() >= until:
            return True
        connection.execute(f"PRAGMA incremental_vacuum({_PAGES})").fetchall()
    return False
