"""Operations on the log of trials, and the transactions that write them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple, TypeAlias

from arkml.trials.core.outputs import Entries
from arkml.trials.datalog.database import KINDS
from arkml.trials.wire.common_pb2 import TrialState

CUT_OFF = "cut off"
"""Reason of trials that ended because their server was killed."""

_COLUMNS = 9
_SIZES = (512, 64, 8, 1)  # rows of one statement: each one releases the interpreter's lock
_BLANK = repeat("")
_OVERHEAD = 256  # bytes of a queued entry beside its content


class Begin(NamedTuple):
    """
    An operation on the log: the start of a trial.

    Attributes:
        trial_id: Id of the trial.
        user_id: Id of the user who started it.
        params: Serialized TrialParams.
        began_ns: Time of the start, in nanoseconds since 1970.

    """

    trial_id: str
    user_id: str
    params: bytes
    began_ns: int

    @property
    def size(self) -> int:
        """Size of the operation in the queue, in bytes."""
        return len(self.params) + _OVERHEAD

    @property
    def entries(self) -> int:
        """Number of entries as which the operation counts in the limits of the queue."""
        return 1


Row: TypeAlias = tuple[str, int, int, str, str, bytes, str, str]
"""The fields of an Entry; the kind is one of KINDS."""


class Add(NamedTuple):
    """
    An operation on the log: add entries of a trial.

    Args:
        trial_id: Id of the trial.
        parts: The entries, one or many in each part.
        entries: Number of entries in all parts.
        size: Size of all parts in the queue, in bytes.
        largest: Size of the largest content, in bytes.
        tick: Highest tick of the entries.

    """

    trial_id: str
    parts: Sequence[Row | Entries]
    entries: int
    size: int
    largest: int
    tick: int

    @classmethod
    def of(cls, trial_id: str, parts: Sequence[Row | Entries]) -> Add:
        """Return the operation that adds these entries."""
        entries = size = largest = last = 0
        for part in parts:
            if isinstance(part, Entries):
                _, tick, _, _, _, contents, notes, origins = part
                lengths = [*map(len, contents)]
                size += sum(lengths) + sum(map(len, notes)) + sum(map(len, origins))
                entries += len(lengths)
                length = max(lengths, default=0)
            else:
                _, tick, _, _, _, content, note, origin = part
                length = len(content)
                size += length + len(note) + len(origin)
                entries += 1
            largest, last = max(largest, length), max(last, tick)
        return cls(trial_id, parts, entries, size + entries * _OVERHEAD, largest, last)


class Change(NamedTuple):
    """
    An operation on the log: a new state of a trial.

    The last one of a trial has `ended_ns`, in nanoseconds since 1970, and a reason or "".
    """

    trial_id: str
    state: TrialState
    ended_ns: int | None = None
    reason: str = ""

    @property
    def size(self) -> int:
        """Size of the operation in the queue, in bytes."""
        return len(self.reason) + _OVERHEAD

    @property
    def entries(self) -> int:
        """Number of entries as which the operation counts in the limits of the queue."""
        return 1


Operation: TypeAlias = Begin | Add | Change


class Numbers(dict[str, int]):
    """The number that each running trial has in the log's file, by the id of the trial."""


def write(
    connection: sqlite3.Connection, operations: Sequence[Operation], numbers: Numbers
) -> Numbers:
    """
    Apply operations, such as the start of a trial, to the log's file in one transaction.

    Args:
        connection: A connection of `database.connect`.
        operations: The operations, in order.
        numbers: The number of each running trial in the file, before the operations.

    Returns:
        The number of each running trial after the operations.

    Raises:
        sqlite3.Error: The transaction failed; the file is unchanged.

    """
    after = Numbers(numbers)
    connection.execute("BEGIN IMMEDIATE")
    try:
        _apply(connection, operations, after)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return after


def _apply(
    connection: sqlite3.Connection, operations: Sequence[Operation], numbers: Numbers
) -> None:
    values: list[int | str | bytes] = []
    for operation in operations:
        if isinstance(operation, Begin):
            cursor = connection.execute(
                "INSERT INTO trials (id, user_id, params, state, began_ns) VALUES (?, ?, ?, ?, ?)",
                (*operation[:3], TrialState.INITIALIZING, operation.began_ns),
            )
            assert cursor.lastrowid is not None
            numbers[operation.trial_id] = cursor.lastrowid
        elif isinstance(operation, Add):
            _add_values(values, numbers[operation.trial_id], operation.parts)
        else:
            connection.execute(
                "UPDATE trials SET state = ?, ended_ns = ?, reason = ? WHERE number = ?",
                (*operation[1:], numbers[operation.trial_id]),
            )
            if operation.ended_ns is not None:
                del numbers[operation.trial_id]
    _insert(connection, values)


def _add_values(
    values: list[int | str | bytes], number: int, parts: Sequence[Row | Entries]
) -> None:
    """Append the column values of each entry, for the trial with this number."""
    for part in parts:
        if isinstance(part, Entries):
            kind, tick, timestamp, names, sender, contents, notes, origins = part
            columns = zip(names, contents, notes or _BLANK, origins or _BLANK, strict=False)
            head = number, KINDS[kind], tick, timestamp
            for name, content, note, origin in columns:
                values += (*head, name, sender, content, note, origin)
        else:
            values += (number, KINDS[part[0]], *part[1:])


def _insert(connection: sqlite3.Connection, values: Sequence[int | str | bytes]) -> None:
    most = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
    start = 0
    for rows in _SIZES:
        count = rows * _COLUMNS
        if count > most:
            continue
        while len(values) - start >= count:
            connection.execute(_statement(rows), values[start : start + count])
            start += count


def _statement(rows: int) -> str:
    row = f"({', '.join('?' * _COLUMNS)})"
    return (
        "INSERT INTO entries (trial, kind, tick, timestamp, name, sender, content, note, origin)"
        f" VALUES {', '.join([row] * rows)}"
    )


def cut_off(connection: sqlite3.Connection) -> int:
    """
    End the trials whose server was killed, at the time of their last entries.

    Returns their number. Raises sqlite3.Error.
    """
    cursor = connection.execute(
        "UPDATE trials SET state = ?, reason = ?, ended_ns = coalesce((SELECT timestamp FROM"
        " entries WHERE trial = trials.number ORDER BY tick DESC, number DESC LIMIT 1), began_ns)"
        " WHERE ended_ns IS NULL",
        (TrialState.ENDED, CUT_OFF),
    )
    return cursor.rowcount
