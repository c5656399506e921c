"""Removal of trials from a log by its user, even while a server writes to it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from arkml.trials.core.error import TrialError
from arkml.trials.datalog.database import FAILURES, FILE, connect, lock, problem
from arkml.trials.datalog.operations import cut_off
from arkml.trials.datalog.reader import DatalogReader, TrialRecord
from arkml.trials.datalog.retention import mark, remove_some

_LOCKED = 10.0  # seconds


def remove(
    directory: Path, choose: Callable[[DatalogReader], list[TrialRecord]]
) -> list[TrialRecord]:
    """
    Remove the trials that `choose` returns, and return them.

    Raises TrialError, before anything is removed, if one of them is running.
    """
    with DatalogReader(directory):
        pass  # raise here if there is no log: `lock` would create the directory
    _end_those_of_a_killed_server(directory)
    with DatalogReader(directory) as reader:
        chosen = choose(reader)
    running = [record.id for record in chosen if record.ended_ns is None]
    if running:
        raise TrialError(f"trial {running[0]!r} is running: end it first")
    with _opened(directory / FILE) as connection:
        mark(connection, [record.number for record in chosen])
        while remove_some(connection):
            continue
    return chosen


def _end_those_of_a_killed_server(directory: Path) -> None:
    """
    End the trials of a killed server.

    Skipped if a server is running, as it has done so itself.
    """
    try:
        descriptor = lock(directory)
    except TrialError:
        return
    try:
        with _opened(directory / FILE) as connection:
            cut_off(connection)
    finally:
        os.close(descriptor)


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a file to write, and turn its failures into a TrialError."""
    try:
        with closing(connect(path, "rw", _LOCKED)) as connection:
            yield connection
    except FAILURES as error:
        raise TrialError(problem(path, error)) from None
