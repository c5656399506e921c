"""The limit on replacements of a worker that keeps dying."""

from __future__ import annotations

from collections import deque

MAX_REPLACEMENTS = 5
"""Number of immediate replacements within WITHIN_SECONDS."""

WITHIN_SECONDS = 60.0


class Deaths:
    """The recent deaths of one worker, which decide when to replace it."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=MAX_REPLACEMENTS + 1)

    def note(self, now: float) -> float:
        """
        Note a death at the time `now`, in seconds; return the seconds to wait before a restart.

        The wait is 0 for the first MAX_REPLACEMENTS deaths within WITHIN_SECONDS.
        """
        self._times.append(now)
        if len(self._times) <= MAX_REPLACEMENTS:
            return 0.0
        return max(0.0, self._times[0] + WITHIN_SECONDS - now)
