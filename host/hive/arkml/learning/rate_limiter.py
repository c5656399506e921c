"""The rate limiter: it keeps the ratio of updates to rows within bounds on both sides."""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import NamedTuple

from arkml.hive.protocol.runs import LEAST_AHEAD, MOST_AHEAD
from arkml.hive.protocol.settings import Settings

MOST_UPDATES = 64
"""The largest number of updates of a turn, which one compiled call makes (decision 16)."""

LEAST_ROWS_PER_SECOND = 100
"""The least number of rows that a second of updates admits, whatever the ratio."""

BACKLOG_SECONDS = 3.0
"""
Seconds of updates that may be due at most; the rest is forgotten.

A learner that makes updates for LEAST_ROWS_PER_SECOND makes those of LEAST_AHEAD rows in less.
"""

_MEASURED = 5
"""Turns of updates that are timed before any update is forgotten."""

_TURN_SECONDS = 0.1
_AHEAD_SECONDS = 0.02
"""
Seconds of updates whose rows are admitted in advance: a message to hosts and back.

More of them make policies older: a pendulum at one update a row stands after 2,600 rows (median of
five seeds; 4,600 the worst) where 256 rows are ahead, and 3,100 (10,200) with 857. A cart-pole
that stands falls again more often.
"""


class _Origin(NamedTuple):
    """The rows, updates and error from which the present error is counted."""

    rows: int
    updates: int
    error: float


class RateLimiter:
    """
    Bounds the rows that hosts may send and the updates that the learner may make.

    It is the `SampleToInsertRatio` of Reverb (Cassirer et al., "Reverb: A Framework for Experience
    Replay", 2021; `reverb/rate_limiters.py`): an insert is a row, a sample is an update,
    `samples_per_insert` is `Settings.updates_per_row`, and `min_size_to_sample` is
    `Settings.memory_min_size`. Both sides are bounded by

        error = (rows - memory_min_size) * updates_per_row - updates

    - An update is allowed while the error stays at 0 or above (`min_diff`): the first
      `memory_min_size` rows allow none, because otherwise many updates would be made from few
      rows, and later rows never allow more than their ratio.
    - A row is allowed while the error stays at or below `max_diff`, which is `updates_per_row`
      times the rows that hosts may be ahead of the learner, LEAST_AHEAD to MOST_AHEAD. A row is
      also allowed whenever no update is, so that hosts and learner never both wait (Reverb bounds
      its `error_buffer` from below instead).

    Two things differ from Reverb. Hosts that do not wait cannot be bounded, so an error of more
    than BACKLOG_SECONDS of updates is forgotten: a learner that was delayed for longer does not
    make up for it. And however slow the learner is, LEAST_ROWS_PER_SECOND are admitted: hosts that
    wait are served at an effective `min(updates_per_row, 1 / (update_seconds *
    LEAST_ROWS_PER_SECOND))` updates for each row.

    In lockstep (`Settings.sync`) nothing is forgotten, and nothing depends on the clock: after
    each batch of rows that is read from the log there have been `max(0, floor((rows -
    memory_min_size) * updates_per_row))` updates.

    `updates` counts the updates of this run only: the policy that it began with may have had some
    before. `admitted` may be called from any thread, the other methods from one.
    """

    def __init__(self, settings: Settings) -> None:
        self.update_seconds = 0.0
        """Seconds of one update, the median of the last turns; 0 before the second turn."""
        self._ratio = settings.updates_per_row
        self._sync = settings.sync
        self._first_rows = settings.memory_min_size
        self._origin = _Origin(0, 0, self._error(0, 0))
        self._rows = 0
        self._updates = 0
        self._admitted = float(settings.memory_min_size + LEAST_AHEAD)
        self._is_warm = False
        self._timed: deque[float] = deque(maxlen=2 * _MEASURED - 1)

    @property
    def holds(self) -> bool:
        """Always False, since rows of any age are learned from."""
        return False

    def begin(self, rows: int, updates: int) -> None:
        """
        Start from the numbers of rows and updates that a new learner process finds.

        Hosts may send LEAST_AHEAD more rows at once. A restarted learner has lost the updates since
        its checkpoint, so they are due again, but no more than the updates of MOST_AHEAD rows.
        """
        self._note(rows, updates)
        error = self._error(rows, updates)
        if updates:
            error = min(error, MOST_AHEAD * self._ratio)
        self._origin = _Origin(rows, updates, error)
        self._admitted = max(self._admitted, rows + LEAST_AHEAD)

    def admitted(self, updates: int) -> int:
        """
        Return the number of rows that hosts may have sent in all after `updates` updates.

        The number never decreases.
        """
        return math.floor(max(self._admitted, self._allowed(updates)))

    def due(self, rows: int, updates: int) -> int:
        """
        Return how many updates may be made now, given the numbers of rows and updates so far.

        Forgets updates beyond BACKLOG_SECONDS.
        """
        if self._sync:
            return max(0, math.floor(self._error(rows, updates)))
        self._note(rows, updates)
        origin = self._origin
        error = origin.error + (rows - origin.rows) * self._ratio - (updates - origin.updates)
        if error > self._backlog:
            error = self._backlog
            self._origin = _Origin(rows, updates, error)
        if error < 1:
            self._admitted = max(self._admitted, rows + self._ahead)
        return max(0, math.floor(error))

    def turn(self, due: int) -> int:
        """Return the number of due updates to make before messages are read again."""
        if self._sync:
            return min(due, MOST_UPDATES)  # by the clock, two runs would differ
        if not self.update_seconds:
            return 1  # it may take a millisecond or a second
        return max(1, min(due, MOST_UPDATES, int(_TURN_SECONDS / self.update_seconds)))

    def record(self, updates: int, seconds: float) -> None:
        """
        Record that `updates` updates took `seconds`.

        The first turn is not timed: it includes loading and compiling, which happen only once.
        """
        before = self._admitted
        self._note(self._rows, self._updates + updates)
        if not self._is_warm:
            self._is_warm = True
            return
        self._timed.append(seconds / updates)
        self.update_seconds = median(self._timed)  # a turn may be late for others' sake
        least = LEAST_ROWS_PER_SECOND * seconds
        most = self._rows + self._ahead + least  # rows that were not sent do not add up
        self._admitted = max(self._admitted, min(before + least, most))

    @property
    def _ahead(self) -> float:
        """
        Rows admitted beyond what the updates allow, so that hosts need not wait for each body.

        With more such rows, the acting policy is older.
        """
        if not self.update_seconds:
            return LEAST_AHEAD
        rows = _AHEAD_SECONDS / (self.update_seconds * self._ratio)
        return min(max(rows, LEAST_AHEAD), MOST_AHEAD)

    def _error(self, rows: int, updates: int) -> float:
        return (rows - self._first_rows) * self._ratio - updates

    @property
    def _backlog(self) -> float:
        """The largest error that is not forgotten."""
        if len(self._timed) < _MEASURED:
            return math.inf
        return max(1, math.floor(BACKLOG_SECONDS / self.update_seconds))

    def _allowed(self, updates: int) -> float:
        """Return the rows at which the error is `max_diff` after `updates` updates."""
        origin = self._origin
        most = min(self._ahead * self._ratio, self._backlog)
        return origin.rows + (updates - origin.updates - origin.error + most) / self._ratio

    def _note(self, rows: int, updates: int) -> None:
        """Note rows and updates; the number of admitted rows never falls."""
        self._rows, self._updates = rows, updates
        self._admitted = max(self._admitted, self._allowed(updates))
