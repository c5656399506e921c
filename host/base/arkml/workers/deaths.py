"""The limit on how often a worker that dies is replaced."""

from __future__ import annotations

from collections import deque

MAX_REPLACEMENTS = 5
"""Times that a worker is replaced at once within WITHIN_SECONDS."""

WITHIN_SECONDS = 60.0


class Deaths:
    """The last deaths of one worker, as far as they decide when another may take its place."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=MAX_REPLACEMENTS + 1)

    def note(self, now: float) -> float:
        """
        Note a death at `now`, in seconds; return the seconds until another start is allowed.

        That is 0 for the first MAX_REPLACEMENTS deaths within WITHIN_SECONDS.
        """
        self._times.append(now)
        if len(self._times) <= MAX_REPLACEMENTS:
            return 0.0
        return max(0.0, self._times[0] + WITHIN_SECONDS - now)
