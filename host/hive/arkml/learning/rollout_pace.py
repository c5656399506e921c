"""The pace of a learner that learns from one rollout after another."""

from __future__ import annotations

from arkml.hive.protocol.runs import LEAST_AHEAD
from arkml.hive.protocol.settings import Settings
from arkml.learning.ppo_batches import count_minibatches
from arkml.learning.rollout_buffer import RolloutBuffer


class RolloutPace:
    """
    Admits the rows that a rollout lacks, and none from then until the next policy is published.

    The due updates are the updates of all epochs.
    """

    def __init__(self, settings: Settings, buffer: RolloutBuffer) -> None:
        self.update_seconds = 0.0
        """Seconds of one update, a moving average; 0 before the first."""
        self.awaits_version = True
        """True from an update, or the start, until the newest policy is published."""
        self._settings = settings
        self._buffer = buffer
        self._rows_before = 0  # rows of the run that this process does not read

    @property
    def holds(self) -> bool:
        """True if the rollout is full, or the policy that is to act is not published yet."""
        return self._buffer.is_full or self.awaits_version

    def begin(self, rows: int, updates: int) -> None:
        """
        Start from the rows that a learner finds.

        `rows` is 0 if the checkpoint is from another run: then no row of this run has been learned
        from.
        """
        del updates
        self._buffer.learned_rows = min(self._buffer.learned_rows, rows)
        self._rows_before = max(0, rows - self._buffer.rows)

    def admitted(self, updates: int) -> int:
        """Return the number of rows that hosts may have sent in all. `updates` does not matter."""
        del updates
        rows = self._rows_before + self._buffer.rows
        if self.holds:
            return rows
        return rows + self._settings.rollout_rows - self._buffer.transitions + LEAST_AHEAD

    def due(self, rows: int, updates: int) -> int:
        """Return the updates of a full rollout, 0 before."""
        del rows, updates
        if not self._buffer.is_full:
            return 0
        settings, buffer = self._settings, self._buffer
        rollout = min(buffer.transitions, buffer.most)
        return settings.epochs * count_minibatches(rollout, settings.batch_size)

    def turn(self, due: int) -> int:
        """Return `due`: all epochs of a rollout are one call."""
        return due

    def record(self, updates: int, seconds: float) -> None:
        """Record that `updates` updates took `seconds`."""
        each = seconds / updates
        average = self.update_seconds
        self.update_seconds = 0.8 * average + 0.2 * each if average else each
