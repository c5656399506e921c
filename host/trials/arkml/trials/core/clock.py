"""The times by which something has to happen in a trial."""

from __future__ import annotations

from arkml.trials.core.admission import Admission
from arkml.trials.core.ending import TrialEnding
from arkml.trials.core.turn import TurnRules


class TrialClock:
    """
    The next time at which a trial has to be looked at, and its last activity.

    `most_idle` are the seconds without any message after which it is cut off, 0 for no such time.
    """

    def __init__(
        self, admission: Admission, turn: TurnRules, ending: TrialEnding, most_idle: float
    ) -> None:
        self._admission = admission
        self._turn = turn
        self._ending = ending
        self._most_idle = most_idle
        self._active_at: float | None = None

    def start(self, now: float) -> None:
        """Begin to measure how long nothing happens."""
        self._active_at = now

    def note_activity(self, now: float) -> None:
        """Take in that something has happened."""
        if self._active_at is not None:
            self._active_at = now

    @property
    def due(self) -> float | None:
        """Time by which one that is waited for is late, None if nothing is waited for."""
        if self._admission.awaited:
            return self._admission.due
        return self._ending.due if self._ending.has_begun else self._turn.due

    @property
    def idle_at(self) -> float | None:
        """Time at which nothing has happened for too long, None if there is no such time."""
        if self._active_at is None or not self._most_idle:
            return None
        return self._active_at + self._most_idle

    @property
    def next(self) -> float | None:
        """The earlier one of both times, None without any."""
        due, idle = self.due, self.idle_at
        return idle if due is None or (idle is not None and idle < due) else due
