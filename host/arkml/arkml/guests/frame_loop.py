"""Frames of one guest in the shim's loop, some of which may run within one resumption."""

from __future__ import annotations

from arkml.guests.calls import CallLoop
from arkml.runtime.exported_function import ExportedFunction
from arkml.runtime.shim import control as at


class FrameLoop:
    """The frames of the guest of `calls`, repeated calls of an export."""

    def __init__(self, calls: CallLoop) -> None:
        self._calls = calls
        self._words = calls.instance.words
        self._touched = calls.instance.lockstep.touched
        self._ahead = (calls.control + at.FRAMES_AHEAD) >> 2

    def begin(self, function: str) -> ExportedFunction:
        """Start a frame, in the loop if the loop can call the export; see `CallLoop.begin`."""
        instance = self._calls.instance
        if (refusal := instance.refusal()) is not None:
            raise refusal
        loop = instance.loop(function)
        if loop is None:
            return self._calls.begin(function)
        self._words[self._ahead] = 0
        calls = self._calls
        calls.fiber.start(loop, (), instance.limits.run_seconds, instance.limits.call_seconds)
        if calls.place in self._touched:
            calls.forget_call()
            self._touched.discard(calls.place)
        return loop

    def run_ahead(self, frames: int) -> None:
        """
        Let the guest run `frames` more after the present one, if it is in the loop.

        It stops at the end of the first frame, the present one included, in which it calls an
        import that the host answers: the host then clears the results of the call (decision 12).
        """
        # A frame that runs ahead saves a resumption, but nothing of the host runs before it.
        self._words[self._ahead] = 0 if self._calls.place in self._touched else frames


class FrameCount:
    """The number of frames that have ended in a guest's loop, u32, which wraps around."""

    __slots__ = ("_place", "_words")

    def __init__(self, calls: CallLoop) -> None:
        self._words = calls.instance.words  # no more of the guest, whose clock asks this
        self._place = (calls.control + at.FRAMES) >> 2

    def __call__(self) -> int:
        return self._words[self._place]


def frames_between(before: int, now: int) -> int:
    """Return how many frames ended between two counts; 5 from 0xFFFF_FFFE to 3, for example."""
    return (now - before) & 0xFFFF_FFFF
