"""
The writer of the log of trials, which never makes a trial wait.

Theory of operation
===================

A disk can take seconds to accept a write; a tick of a trial must not. So Datalog has two threads
and a queue between them. The thread of the trials (the server's event loop) calls `begin`, `add`,
`state` and `end`, each of which appends an operation to the queue and returns. The thread of the
log takes operations off and writes them to `trials.sqlite`. Each thread has its own counters of
entries and bytes, and only ever increases them. Their difference is the length of the queue, so
reading it needs no lock.

The thread of the log works in turns. It sleeps until an operation arrives, waits another tenth of
a second for more, and then writes the whole queue, in transactions of at most 16,384 entries or
about 16 MiB. Operations are written in the order in which they were added, and a transaction is
written wholly or not at all. Therefore a trial in the file has no gaps: after the process was
killed, it lacks at most its end. The next server that opens the file gives such trials an end, at
the time of their last entries, with the reason "cut off" (`operations.cut_off`).

If a write fails, for example because the disk is full, the batch is kept and tried again every
second. Meanwhile `failure` holds a sentence for the operator, and the queue grows. Once it
reaches `most_entries` or `most_waiting`, the log takes no new trials and gives up each trial that
adds to it: the trial is marked as ended in the log, with the reason, and its later entries are
dropped, since a log with a gap would be misleading. The trial itself continues.

After its writes a turn removes trials that are no longer kept (`retention.py`): beyond
`kept_trials`, or while the file uses more than `most_bytes`, the trial that ended first is marked
and then deleted a few rows at a time, for some hundredths of a second a turn. If the file is too
large and every trial in it still runs, that is a failure like a full disk; it passes once a trial
ends, or the server is started with a larger limit.

A server locks its directory (`database.lock`), so that no two servers write to one log. Readers
(`reader.py`) and `arkml trials remove` open the file while a server writes: SQLite's write-ahead
log lets them read a consistent state. An entry belongs to the tick that it is about. A reward
that arrives late is therefore appended at the end of the file, but read with its tick
(decision 18).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from arkml.base.closing import Closing
from arkml.base.loggers import SafeLogger
from arkml.errors import UsageError
from arkml.trials.core.error import TrialError
from arkml.trials.core.outputs import EntryKind, Logged
from arkml.trials.datalog.database import (
    FAILURES,
    FILE,
    MOST_VALUE,
    STATE,
    connect,
    create,
    lock,
    problem,
)
from arkml.trials.datalog.operations import Add, Begin, Change, Numbers, Operation, cut_off, write
from arkml.trials.datalog.retention import Retention, choose, remove_some, used_bytes
from arkml.trials.wire.common_pb2 import TrialParams, TrialState

_log = SafeLogger(__name__)

EXCLUDED: Final = {
    "observations": EntryKind.OBSERVATIONS,
    "actions": EntryKind.ACTION,
    "rewards": EntryKind.REWARD,
    "messages": EntryKind.MESSAGE,
}
"""Kinds of entries that each name in `DatalogParams.exclude_fields` leaves out."""

_TURN = 0.1  # seconds between commits
_RETRY = 1.0  # seconds between attempts to write after one failed
_LOCKED = 2.0  # seconds that another process may lock the file
_TRANSACTION = 16_384, 16 << 20  # entries and bytes
_LATE = "cut off: the log of trials could not be written in time"


@dataclass(frozen=True, slots=True)
class DatalogOptions:
    """
    Limits of a log.

    Args:
        retention: Trials and bytes to keep in the file.
        most_entries: Maximum number of entries that wait to be written.
        most_waiting: Maximum size of the entries that wait to be written, in bytes.

    Raises:
        UsageError: A number is not above 0.

    """

    retention: Retention = field(default_factory=Retention)
    most_entries: int = 500_000
    most_waiting: int = 256 << 20

    def __post_init__(self) -> None:
        for name in ("most_entries", "most_waiting"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}: it takes a number from 1")


class Datalog(Closing):
    """
    The log of one server's trials, in the file `trials.sqlite` of a directory.

    `begin`, `add`, `state` and `end` belong to one thread and never wait; the theory of operation
    is at the top of this module. Trials that an earlier, killed server left running are marked as
    ended.

    Args:
        directory: Folder of the file; both are created if missing.
        options: Limits of the log.
        loop: Event loop for `on_failure`; without one it is never called.
        on_failure: Called once with the sentence of each new failure.

    Attributes:
        path: Path of the file.
        failure: Reason why the log cannot be written, or holds too much; empty otherwise.

    Raises:
        TrialError: The file cannot be opened, or another server uses the directory.

    """

    def __init__(
        self,
        directory: Path,
        options: DatalogOptions | None = None,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        on_failure: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.path = directory / FILE
        self.failure = ""
        self._options = options or DatalogOptions()
        self._loop = loop
        self._on_failure = on_failure
        self._open: dict[str, frozenset[EntryKind]] = {}  # excluded kinds, by running trial
        self._ticks: dict[str, int] = {}
        self._queue: deque[Operation] = deque()
        self._added = self._added_bytes = 0  # only the thread of the trials adds to these,
        self._taken = self._taken_bytes = 0  # only the thread of the log to these: no lock
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._numbers = Numbers()
        self._batch: list[Operation] = []
        self._is_removing = True  # an earlier server may have left marked trials
        self._lock = lock(directory)
        try:
            self._connection: sqlite3.Connection | None = self._first_connection()
        except BaseException:
            os.close(self._lock)
            raise
        self._thread = threading.Thread(target=self._run, name="arkml-datalog", daemon=True)
        self._thread.start()

    def begin(self, trial_id: str, user_id: str, params: TrialParams, began_ns: int) -> None:
        """
        Add a trial, before its entries.

        Args:
            trial_id: Id of the trial.
            user_id: Id of the user who started it.
            params: Its parameters. `exclude_fields` of the datalog choose the entries to leave out.
            began_ns: Time of its start, in nanoseconds since 1970.

        """
        if self._is_crowded():
            self._fail(self._crowded())
            return
        self._open[trial_id] = frozenset(
            EXCLUDED[name] for name in params.datalog.exclude_fields if name in EXCLUDED
        )
        self._ticks[trial_id] = 0
        self._append(Begin(trial_id, user_id, params.SerializeToString(), began_ns))

    def add(self, trial_id: str, *entries: Logged) -> None:
        """
        Add entries of a trial.

        Does nothing if the log does not have the trial, or gave it up.
        """
        excluded = self._open.get(trial_id)
        if excluded is None:
            return
        if excluded:
            entries = tuple(entry for entry in entries if entry.kind not in excluded)
        if not entries:
            return
        added = Add.of(trial_id, entries)
        if added.largest > MOST_VALUE:
            self._give_up(trial_id, f"cut off: an entry of {added.largest:,} bytes is not logged")
            return
        self._ticks[trial_id] = max(added.tick, self._ticks[trial_id])
        self._put(added)

    def state(self, trial_id: str, state: TrialState, timestamp: int) -> None:
        """
        Add a new state of a trial to the log.

        Args:
            trial_id: Id of the trial.
            state: The state.
            timestamp: Time of the change, in nanoseconds since 1970.

        """
        if trial_id in self._open:
            note = TrialState.Name(state)
            tick = self._ticks[trial_id]
            self._put(Add.of(trial_id, [(STATE, tick, timestamp, "", "", b"", note, "")]))
        if trial_id in self._open and state != TrialState.ENDED:  # `end` follows with a reason
            self._put(Change(trial_id, state))

    def end(self, trial_id: str, ended_ns: int, reason: str) -> None:
        """
        End a trial.

        Args:
            trial_id: Id of the trial.
            ended_ns: Time of its end, in nanoseconds since 1970.
            reason: Why it was cut off, or empty.

        """
        if trial_id in self._open:
            self._put(Change(trial_id, TrialState.ENDED, ended_ns, reason))
        self._forget(trial_id)

    def close(self) -> None:
        """
        Write all queued entries, and close the file.

        Blocks until this has succeeded or failed.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        self._wake.set()
        self._thread.join()
        os.close(self._lock)

    # The thread of the trials

    def _put(self, operation: Operation) -> None:
        if self._is_crowded():
            self._give_up(operation.trial_id, _LATE)
            self._fail(self._crowded())
        else:
            self._append(operation)

    def _append(self, operation: Operation) -> None:
        self._queue.append(operation)
        self._added += operation.entries
        self._added_bytes += operation.size
        if not self._wake.is_set():
            self._wake.set()

    def _is_crowded(self) -> bool:
        options = self._options
        return (
            self._added - self._taken >= options.most_entries
            or self._added_bytes - self._taken_bytes >= options.most_waiting
        )

    def _give_up(self, trial_id: str, reason: str) -> None:
        """End the log of a trial early: a log with a gap would be misleading."""
        self._append(Change(trial_id, TrialState.ENDED, time.time_ns(), reason))
        self._forget(trial_id)

    def _crowded(self) -> str:
        return f"the log of trials {self.path} is too slow: too many entries wait for its disk"

    def _forget(self, trial_id: str) -> None:
        self._open.pop(trial_id, None)
        self._ticks.pop(trial_id, None)

    # The thread of the log

    def _run(self) -> None:
        is_closing = False
        while not is_closing:
            is_closing = self._pause()
            self._turn()
        self._disconnect()
        if left := self._added - self._taken:
            _log.error("%d entries of trials were not written: %s", left, self.failure)

    def _pause(self) -> bool:
        """Wait for the next turn; return True if it is the last."""
        if self.failure:
            return self._closing.wait(_RETRY)
        if not (self._is_removing or self._closing.is_set()):  # `close` sets it before `_wake`
            self._wake.wait()
        self._wake.clear()  # first: a `close` from here on wakes the next turn
        return self._closing.wait(_TURN)

    def _turn(self) -> None:
        """Write the queue, and remove some of the trials that are no longer kept."""
        try:
            connection = self._connection or connect(self.path, "rw", _LOCKED)
            self._connection = connection
            while self._fill_batch():
                self._write_batch(connection)
            self._remove(connection)
        except TrialError as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001  trials survive the end of their log
            self._disconnect()
            self._fail(problem(self.path, error))
        else:
            if self.failure:
                _log.info("the log of trials %s can be written again", self.path)
                self.failure = ""

    def _fill_batch(self) -> bool:
        """Fill the batch from the queue; return False if there is nothing to write."""
        entries, most = _TRANSACTION
        if not self._batch:
            while self._queue and entries > 0 and most > 0:
                self._batch.append(self._queue.popleft())
                entries -= self._batch[-1].entries
                most -= self._batch[-1].size
        return bool(self._batch)

    def _write_batch(self, connection: sqlite3.Connection) -> None:
        self._numbers = write(connection, self._batch, self._numbers)
        self._taken += sum(operation.entries for operation in self._batch)
        self._taken_bytes += sum(operation.size for operation in self._batch)
        self._is_removing |= any(isinstance(one, Change) for one in self._batch)
        self._batch.clear()

    def _remove(self, connection: sqlite3.Connection) -> None:
        retention = self._options.retention
        if not self._is_removing and used_bytes(connection) <= retention.most_bytes:
            return
        has_room = choose(connection, retention)
        is_over = used_bytes(connection) > retention.most_bytes
        self._is_removing = remove_some(connection) or (has_room and is_over)
        if not has_room:
            raise TrialError(
                f"the log of trials {self.path} has reached {retention.most_bytes:,} bytes: remove"
                " trials, or allow more"
            )

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _fail(self, reason: str) -> None:
        is_new, self.failure = not self.failure, reason
        if not is_new:
            return
        _log.error("%s", reason)
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._on_failure, reason)

    def _first_connection(self) -> sqlite3.Connection:
        create(self.path)
        try:
            connection = connect(self.path, "rw", _LOCKED)
            try:
                if ended := cut_off(connection):
                    _log.warning("%d trials were cut off when their server was killed", ended)
            except BaseException:
                connection.close()
                raise
        except FAILURES as error:
            raise TrialError(problem(self.path, error)) from None
        return connection
