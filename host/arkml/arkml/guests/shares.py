"""Each guest's share of the frame time of its fleet, and the guests that exceed their shares."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import median_low

from arkml.runtime.account import LONG

FRAMES_SEEN = 20
"""The last frames of a fleet in which a guest may be over its share a few times."""

LEAST = LONG
"""Seconds that no guest is evicted for: what is shorter may be time that others had."""

_TIMES_USUAL = 4  # a guest that is like half of the others, or four times as slow, is not over


class FleetShares:
    """
    Counts the frames in which each guest of a fleet took more than its share of the time.

    A frame counts if its guests together took more than half of the budget of one call: the time
    that they used, plus the time in which none could run because some waited. The share of a guest
    is the budget divided by the number of guests (for example 0.1 s for ten guests and a budget of
    1 s), four times the time of the median guest, or `LEAST`, whichever is most. `most` is the
    number of frames, of the last `FRAMES_SEEN`, in which a guest may exceed its share.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.frame = 0
        """Frames so far."""
        self._over: dict[int, deque[int]] = {}  # frames by the place of the guest

    def judge(self, taken: Mapping[int, float], budget: float) -> dict[int, float]:
        """
        Count a frame in which each guest took these seconds; keys are positions in the lockstep.

        Returns the positions of guests that exceeded their shares in too many frames, with the
        share in this frame, in seconds.
        """
        share = max(budget / len(taken), _TIMES_USUAL * median_low(taken.values()), LEAST)
        evicted: dict[int, float] = {}
        for place, seconds in taken.items():
            if seconds <= share:
                continue
            frames = self._over.setdefault(place, deque())
            frames.append(self.frame)
            while frames[0] <= self.frame - FRAMES_SEEN:
                frames.popleft()
            if len(frames) > self.most:
                evicted[place] = share
                del self._over[place]
        return evicted

    def forget(self, place: int) -> None:
        """Forget the frames of a guest whose position in the lockstep goes to another guest."""
        self._over.pop(place, None)
