"""The reader of a log of trials. It does not trust the file, and may read while a server writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from arkml.base.closing import Closing
from arkml.trials.core.error import TrialError
from arkml.trials.datalog.database import FAILURES, FILE, KINDS, connect, problem
from arkml.trials.wire.common_pb2 import TrialParams, TrialState

MOST_SAMPLE: Final = 1 << 30
"""Maximum size of the entries of one tick in bytes; a file with a larger tick is refused."""

_LOCKED = 5.0  # seconds
_PAGE = 512  # entries in one query: a long one would keep the write-ahead log from being reset
_PAGE_BYTES = 16 << 20
_NAMES = {number: kind for kind, number in KINDS.items()}

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """
    A trial in the log.

    Args:
        number: Number of the trial in its file. Two trials of a file may have the same id.
        id: Id of the trial.
        user_id: Id of the user who started it.
        state: Its last state.
        began_ns: Time of its start, in nanoseconds since 1970.
        ended_ns: Time of its end. None while it runs, or if its server was killed and has not been
            started since.
        reason: Why it was cut off; empty otherwise.
        ticks: Number of logged ticks.

    """

    number: int
    id: str
    user_id: str
    state: TrialState
    began_ns: int
    ended_ns: int | None
    reason: str
    ticks: int

    @property
    def seconds(self) -> float | None:
        """Duration in seconds, None while the trial has no end."""
        return None if self.ended_ns is None else (self.ended_ns - self.began_ns) / 1e9


class LoggedEntry(NamedTuple):
    """
    An entry in the file, with the fields of `core.outputs.Entry`.

    `number` increases in the order in which entries were added.
    """

    number: int
    kind: str
    tick: int
    timestamp: int
    name: str
    sender: str
    content: bytes
    note: str
    origin: str


class DatalogReader(Closing):
    """
    The log in a directory, read while a server writes it or afterwards.

    Raises TrialError, also from its methods, if there is no log or the file is damaged.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE
        with self._sentences():
            self._connection = connect(self.path, "ro", _LOCKED)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def trials(self) -> list[TrialRecord]:
        """Return all trials, newest first."""
        return self._records("ORDER BY number DESC", ())

    def named(self, trial_id: str) -> list[TrialRecord]:
        """Return the trials with an id, newest first. Raises TrialError if there are none."""
        records = self._records("AND id = ? ORDER BY number DESC", (trial_id,))
        if not records:
            likely = self._records("AND instr(id, ?) = 1 ORDER BY number DESC", (trial_id,))
            hint = f"; the whole id of one is {likely[0].id}" if likely else ""
            raise TrialError(f"there is no trial {trial_id!r} in {self.path}{hint}")
        return records

    def params(self, trial: TrialRecord) -> TrialParams:
        """Return the parameters of a trial."""
        statement = "SELECT params FROM trials WHERE number = ?"
        rows = self._rows(statement, (trial.number,))
        if not rows:
            raise TrialError(f"trial {trial.id!r} was removed from {self.path}")
        return self.parsed(TrialParams, self._value(bytes, rows[0][0]))

    def entries(self, trial: TrialRecord, first_tick: int = 0) -> Iterator[LoggedEntry]:
        """Iterate over a trial's entries from a tick on, by tick, then in order of writing."""
        tick, number = first_tick, 0
        while True:
            page = self._page(trial.number, tick, number)
            yield from page
            if not page:
                return
            tick, number = page[-1].tick, page[-1].number

    def parsed(self, kind: type[M], content: bytes) -> M:
        """Parse a message of the log. Raises TrialError if it is damaged."""
        message = kind()
        try:
            message.ParseFromString(content)
        except (DecodeError, RecursionError):
            raise self._damage(f"{content[:20]!r} cannot be parsed as a {kind.__name__}") from None
        return message

    def _page(self, trial: int, tick: int, number: int) -> list[LoggedEntry]:
        """Return the next entries after a given one; empty at the end."""
        page = self._some("tick = ? AND number > ?", (trial, tick, number))
        return page or self._some("tick > ?", (trial, tick))

    def _some(self, condition: str, values: tuple[int, ...]) -> list[LoggedEntry]:
        """Return the first matching entries of a trial, limited in number and bytes."""
        statement = (
            "SELECT number, kind, tick, timestamp, name, sender, content, note, origin FROM entries"
            f" INDEXED BY entries_by_tick WHERE trial = ? AND {condition} ORDER BY tick, number"
            f" LIMIT {_PAGE}"
        )
        page: list[LoggedEntry] = []
        total = 0
        with self._sentences(), closing(self._connection.execute(statement, values)) as cursor:
            for row in cursor:
                page.append(self._entry(row))
                total += len(page[-1].content) + len(page[-1].note) + len(page[-1].origin)
                if total > _PAGE_BYTES:
                    break
        return page

    def _entry(self, row: tuple[Any, ...]) -> LoggedEntry:
        number, kind, tick, timestamp, name, sender, content, note, origin = row
        for value in (number, kind, tick, timestamp):
            self._value(int, value)
        for value in (name, sender, note, origin):
            self._value(str, value)
        self._value(bytes, content)
        if kind not in _NAMES:
            raise self._damage(f"an entry is of the kind {kind}")
        return LoggedEntry(
            number, _NAMES[kind], tick, timestamp, name, sender, content, note, origin
        )

    def _records(self, condition: str, values: Iterable[str]) -> list[TrialRecord]:
        rows = self._rows(
            "SELECT number, id, user_id, state, began_ns, ended_ns, reason, coalesce((SELECT tick"
            " FROM entries WHERE trial = trials.number AND kind IN (?, ?) ORDER BY tick DESC LIMIT"
            f" 1) + 1, 0) FROM trials WHERE NOT is_removed {condition}",
            (KINDS["observations"], KINDS["action"], *values),
        )
        return [self._record(row) for row in rows]

    def _record(self, row: tuple[Any, ...]) -> TrialRecord:
        number, trial_id, user, state, began, ended, reason, ticks = row
        for value in (number, state, began, ticks):
            self._value(int, value)
        for value in (trial_id, user, reason):
            self._value(str, value)
        if ended is not None:
            self._value(int, ended)
        if state not in TrialState.values():
            raise self._damage(f"a trial is in the state {state}")
        return TrialRecord(number, trial_id, user, state, began, ended, reason, ticks)

    def _value(self, kind: type[Any], value: Any) -> Any:
        if type(value) is not kind:
            raise self._damage(f"{value!r:.60} stands where there should be an {kind.__name__}")
        return value

    def _damage(self, text: str) -> TrialError:
        return TrialError(f"the log of trials {self.path} is damaged: {text}")

    def _rows(self, statement: str, values: Iterable[Any]) -> list[tuple[Any, ...]]:
        with self._sentences():
            return self._connection.execute(statement, tuple(values)).fetchall()

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        try:
            yield
        except FAILURES as error:
            raise TrialError(problem(self.path, error)) from None
