"""Pacing of frames in real time: waits between frames, and counts of late ones."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pacer:
    """
    Waits until the next of `fps` frames a second is due.

    A frame that ends after the next frame was due is late: the next frame starts at once, and the
    lost time is not made up for. `late` counts late frames, such as one of 20 ms at 60 a second.
    """

    def __init__(
        self,
        fps: float,
        *,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.late = 0
        self.fps = fps
        self._clock = clock
        self._sleep = sleep
        self._due = clock()

    def begin(self) -> None:
        """Take the present moment as the start of the first frame."""
        self._due = self._clock()

    def wait(self) -> None:
        """Wait after a frame until the next one is due."""
        self._due += 1 / self.fps
        left = self._due - self._clock()
        if left > 0:
            self._sleep(left)
        else:
            self.late += 1
            self._due -= left
