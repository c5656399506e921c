"""A trial log that also makes rows for learning of its entries, on their way to another log."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from arkml.base.closing import Closing
from arkml.base.loggers import SafeLogger
from arkml.guest_trials.learning.spans import SpanRow, SpanRules
from arkml.guest_trials.learning.trial_rows import TrialRows
from arkml.hive import give_way
from arkml.trials.core.error import TrialError
from arkml.trials.core.hosting import is_hosted
from arkml.trials.core.outputs import Entries, Entry, EntryKind, Logged
from arkml.trials.server.orchestrator import TrialLog
from arkml.trials.wire.common_pb2 import TrialParams, TrialState

log = SafeLogger(__name__)

Take = Callable[[Sequence[SpanRow]], object]
"""Takes rows of one actor class."""

_KINDS: Final = frozenset({EntryKind.OBSERVATIONS, EntryKind.ACTION, EntryKind.REWARD})
_MOST_BYTES: Final = 64 << 20
_OVERHEAD: Final = 256  # bytes of an entry beside its content
_TURN = 0.05  # seconds between two turns of the thread
_MOST_ROWS = 1_024  # rows of a class that are taken at once


class _Begin(NamedTuple):
    trial_id: str
    began_ns: int
    params: TrialParams


class _Add(NamedTuple):
    trial_id: str
    entry: Entry


class _End(NamedTuple):
    trial_id: str


_Operation: TypeAlias = _Begin | _Add | _End


class LearnedLog(Closing):
    """
    A log of trials that also makes rows of hosted trials, on a thread of its own.

    All methods of a TrialLog belong to one thread and never wait. If entries of a trial come faster
    than rows are made, and `most_bytes` of them wait, the trial is no longer learned from, but
    still logged.

    Args:
        rules: The rules of the actor classes to learn from.
        takers: Functions that get the rows of each class, on the log's own thread.
        trial_log: The log that keeps the entries.
        most_bytes: The largest number of bytes of waiting entries.

    """

    def __init__(
        self,
        trial_log: TrialLog,
        rules: Mapping[str, SpanRules],
        takers: Mapping[str, Take],
        *,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self._log = trial_log
        self._rules = rules
        self._takers = takers
        self._most_bytes = most_bytes
        self._open: set[str] = set()
        self._queue: deque[_Operation] = deque()
        self._added = 0  # bytes: the thread of the trials counts these,
        self._taken = 0  # and the thread of the rows these
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._trials: dict[str, TrialRows] = {}
        self._rows: dict[str, list[SpanRow]] = {name: [] for name in takers}
        self._thread = threading.Thread(target=self._run, name="arkml-trial-rows", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> str:
        """The reason why the log cannot be written, empty if it can."""
        return self._log.failure

    def begin(self, trial_id: str, user_id: str, params: TrialParams, began: int) -> None:
        """Add a trial."""
        self._log.begin(trial_id, user_id, params, began)
        if is_hosted(params):
            self._open.add(trial_id)
            self._put(_Begin(trial_id, began, params))

    def add(self, trial_id: str, *entries: Logged) -> None:
        """Add entries of a trial."""
        self._log.add(trial_id, *entries)
        if trial_id not in self._open:
            return
        if self._added - self._taken >= self._most_bytes:
            self._forget(trial_id)
            log.warning("trial %s is no longer learned from: rows are made too slowly", trial_id)
            return
        for one in entries:
            if one.kind in _KINDS:
                for entry in one.rows() if isinstance(one, Entries) else (one,):
                    self._added += len(entry.content) + _OVERHEAD
                    self._put(_Add(trial_id, entry))

    def state(self, trial_id: str, state: TrialState, timestamp: int) -> None:
        """Log a new state of a trial."""
        self._log.state(trial_id, state, timestamp)

    def end(self, trial_id: str, ended: int, reason: str) -> None:
        """Log the end of a trial."""
        self._log.end(trial_id, ended, reason)
        self._forget(trial_id)

    def close(self) -> None:
        """Make the rows of all entries that were added. Safe to call more than once."""
        self._closing.set()
        self._wake.set()
        self._thread.join()

    # The thread of the trials

    def _forget(self, trial_id: str) -> None:
        if trial_id in self._open:
            self._open.discard(trial_id)
            self._put(_End(trial_id))

    def _put(self, operation: _Operation) -> None:
        self._queue.append(operation)
        if not self._wake.is_set():
            self._wake.set()

    # The thread of the rows

    def _run(self) -> None:
        give_way()
        is_closing = False
        while not is_closing:
            self._wake.wait()
            self._wake.clear()  # first: a `close` from here on wakes the next turn
            is_closing = self._closing.wait(_TURN)
            while self._queue:
                self._do(self._queue.popleft())
            for name in self._rows:
                self._hand_over(name)

    def _do(self, operation: _Operation) -> None:
        trial_id = operation.trial_id
        try:
            match operation:
                case _Begin():
                    self._trials[trial_id] = TrialRows(*operation, self._rules)
                case _Add(entry=entry):
                    self._taken += len(entry.content) + _OVERHEAD
                    if trial_id in self._trials:
                        self._keep(self._trials[trial_id].add(entry))
                case _End():
                    if trial_id in self._trials:
                        self._keep(self._trials.pop(trial_id).end())
        except TrialError as error:
            log.warning("trial %s is not learned from: %s", trial_id, error)
            self._trials.pop(trial_id, None)
        except Exception:
            log.exception("trial %s is not learned from", trial_id)
            self._trials.pop(trial_id, None)

    def _keep(self, rows: Sequence[tuple[str, SpanRow]]) -> None:
        for name, row in rows:
            self._rows[name].append(row)
            if len(self._rows[name]) >= _MOST_ROWS:
                self._hand_over(name)

    def _hand_over(self, name: str) -> None:
        rows, self._rows[name] = self._rows[name], []
        if rows:
            self._takers[name](rows)
