"""The deadlines of a trial."""

from __future__ import annotations

from arkml.trials.core.admission import Admission
from arkml.trials.core.ending import TrialEnding
from arkml.trials.core.turn import TurnRules


class TrialClock:
    """
    The next deadline of a trial, and the time of its last activity.

    Args:
        admission: Deadlines of actors before the first tick.
        turn: Deadlines of actions.
        ending: Deadlines of acknowledgements.
        most_idle: Seconds without any message after which the trial is cut off, 0 for never.

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
        """
        Start to measure the time without messages.

        That is when the environment is called, so that a trial can wait for people (decision 18).
        """
        self._active_at = now

    def note_activity(self, now: float) -> None:
        """Restart the time without messages."""
        if self._active_at is not None:
            self._active_at = now

    @property
    def due(self) -> float | None:
        """Time at which an actor or the environment is late, None if neither has a deadline."""
        if self._admission.awaited:
            return self._admission.due
        return self._ending.due if self._ending.has_begun else self._turn.due

    @property
    def idle_at(self) -> float | None:
        """Time at which the trial has been idle for too long, None without such a limit."""
        if self._active_at is None or not self._most_idle:
            return None
        return self._active_at + self._most_idle

    @property
    def next(self) -> float | None:
        """The earlier of `due` and `idle_at`, None if both are None."""
        due, idle = self.due, self.idle_at
        return idle if due is None or (idle is not None and idle < due) else due
