"""The ratio of updates to rows, kept from both sides."""

from __future__ import annotations

import math

from arkml.hive.protocol.runs import LEAST_AHEAD, MOST_AHEAD
from arkml.hive.protocol.settings import Settings

MOST_UPDATES = 50
_TURN = 0.1
_AHEAD = 0.3
"""Seconds of updates whose rows are admitted in advance: a message to hosts and back."""


class RateLimiter:
    """
    Bounds the rows that hosts may send and the updates that the learner may make.

    `updates` counts those of this run: the policy that it began with may have had some before.
    """

    def __init__(self, settings: Settings) -> None:
        self.update_seconds = 0.0
        """Seconds of one update, a moving average; 0 before the first."""
        self._settings = settings
        self._rows_before = settings.memory_min_size
        self._updates_before = 0

    @property
    def holds(self) -> bool:
        """False: rows of any age are learned from."""
        return False

    def begin(self, rows: int, updates: int) -> None:
        """
        Start from the rows and updates that a learner finds.

        A restarted learner has lost updates since its checkpoint, and hosts do not wait for those.
        """
        self._rows_before = max(self._settings.memory_min_size, rows)
        self._updates_before = updates

    def admitted(self, updates: int) -> int:
        """Return the number of rows that hosts may have sent in all after `updates` updates."""
        since = max(0, updates - self._updates_before)
        return self._rows_before + self._ahead + math.floor(since * self._settings.rows_per_update)

    @property
    def _ahead(self) -> int:
        """
        Rows admitted beyond what the updates allow, so that hosts need not wait for each body.

        The more of them, the older the policy that acts.
        """
        if not self.update_seconds:
            return LEAST_AHEAD
        rows = self._settings.rows_per_update * _AHEAD / self.update_seconds
        return int(min(max(rows, LEAST_AHEAD), MOST_AHEAD))

    def due(self, rows: int, updates: int) -> int:
        """Return the updates that may be made now, after `rows` rows and `updates` updates."""
        settings = self._settings
        if settings.sync:
            return max(0, math.floor(rows / settings.rows_per_update) - updates)
        return max(0, math.floor(rows * settings.max_updates_per_row) - updates)

    def turn(self, due: int) -> int:
        """Return how many of the updates due to make before messages are read again."""
        if self._settings.sync:
            return min(due, MOST_UPDATES)  # by the clock, two runs would differ
        if not self.update_seconds:
            return 1  # it may take a millisecond or a second
        return max(1, min(due, MOST_UPDATES, int(_TURN / self.update_seconds)))

    def record(self, updates: int, seconds: float) -> None:
        """Record that `updates` updates took `seconds`."""
        each = seconds / updates
        average = self.update_seconds
        self.update_seconds = 0.8 * average + 0.2 * each if average else each
