"""How many rows and how many updates go together."""

from __future__ import annotations

import math

from arkml.hive.protocol.runs import LEAST_AHEAD, MOST_AHEAD
from arkml.hive.protocol.settings import Settings

MOST_UPDATES = 50
_TURN = 0.1
_AHEAD = 0.3
"""Seconds of updates whose rows are admitted in advance: news takes as long to go round."""


class RateLimiter:
    """
    Bounds on both sides, and the time an update takes.

    `updates` counts those of this run: it began with a policy that may have had some before.
    """

    def __init__(self, settings: Settings) -> None:
        self.update_seconds = 0.0
        """What an update took lately, 0 before the first."""
        self._settings = settings
        self._rows_before = settings.memory_min_size
        self._updates_before = 0

    def begin(self, rows: int, updates: int) -> None:
        """
        So many rows and updates are there already when a learner takes over.

        A restarted learner has lost updates, and no host is made to wait for those.
        """
        self._rows_before = max(self._settings.memory_min_size, rows)
        self._updates_before = updates

    def admitted(self, updates: int) -> int:
        """How many rows of the run are admitted in all."""
        made = max(0, updates - self._updates_before)
        return self._rows_before + self._ahead + math.floor(made * self._settings.rows_per_update)

    @property
    def _ahead(self) -> int:
        """
        Rows that are admitted beyond what the updates allow, so that no host waits for each body.

        Too many, and the policy that acts is older than it need be.
        """
        if not self.update_seconds:
            return LEAST_AHEAD
        rows = self._settings.rows_per_update * _AHEAD / self.update_seconds
        return int(min(max(rows, LEAST_AHEAD), MOST_AHEAD))

    def due(self, rows: int, updates: int) -> int:
        """How many updates may be made now, with as much as is in memory."""
        settings = self._settings
        if settings.sync:
            return max(0, math.floor(rows / settings.rows_per_update) - updates)
        return max(0, math.floor(rows * settings.max_updates_per_row) - updates)

    def turn(self, due: int) -> int:
        """How many updates to make before looking at messages again."""
        if self._settings.sync:
            return min(due, MOST_UPDATES)  # by the clock, no two runs would be the same
        if not self.update_seconds:
            return 1  # nobody knows yet whether that takes a millisecond or a second
        return max(1, min(due, MOST_UPDATES, int(_TURN / self.update_seconds)))

    def took(self, updates: int, seconds: float) -> None:
        """So many updates took so long."""
        each = seconds / updates
        known = self.update_seconds
        self.update_seconds = 0.8 * known + 0.2 * each if known else each
