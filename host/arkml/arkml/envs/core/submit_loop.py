"""The way of a guest from one submit that is answered from outside to the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from arkml.errors import GuestStalled
from arkml.guests.calls import CallLoop
from arkml.guests.frame_loop import FrameCount, FrameLoop, frames_between
from arkml.runtime.exported_function import ExportedFunction
from arkml.sessions.session import Session

Calls = Iterator[Callable[[], ExportedFunction]]
"""The calls of an instance, in order; each item begins one."""

_AHEAD = 16  # frames: many guests submit in each second or fourth one alone


def frames_ahead(idle: int, seconds: float | None) -> int:
    """Return how many frames a guest runs after the present one before anything is looked at."""
    return min(_AHEAD, idle) if seconds is None else 1


class SubmitLoop:
    """
    Runs the calls of one guest up to each submit that is answered from outside.

    `is_driven` selects these submits, and `may_run_ahead` says whether the frames after the present
    one may begin without the next of `calls`, which costs less. A guest that since `begin` makes
    `idle` calls, or as many submits without a decision, or takes `seconds`, has stalled. With
    `gives_way` the methods that run the guest raise GaveWay when it has run for a turn, or waits;
    `run_on` continues it then.
    """

    def __init__(
        self,
        guest: CallLoop,
        calls: Calls,
        is_driven: Callable[[Session], bool],
        *,
        idle: int,
        seconds: float | None,
        is_over: Callable[[], bool],
        may_run_ahead: Callable[[], bool],
    ) -> None:
        self.entry: ExportedFunction | None = None
        """The call that the guest is in."""
        self.gives_way: bool = False
        self._guest = guest
        self._frames = FrameLoop(guest)
        self._count = FrameCount(guest)
        self._ahead = frames_ahead(idle, seconds)
        self._calls = calls
        self._is_driven = is_driven
        self._idle = idle
        self._seconds = seconds
        self._is_over = is_over
        self._may_run_ahead = may_run_ahead
        self._left = idle
        self._until: float | None = None
        self._has_submitted = False  # in `entry`: the next to end is the frame of the submit

    def begin(self) -> None:
        """Start to count calls and seconds, for a new step."""
        self._left = self._idle
        self._until = None if self._seconds is None else time.monotonic() + self._seconds

    def resume(self) -> Session | None:
        """
        Return the session of the next submit, or None where the guest came to its end.

        The submit before must be answered. Raises GuestError; GuestStalled among them.
        """
        self._look()
        self._frames.run_ahead(self._ahead if self._may_run_ahead() else 0)
        return self._run()

    def run_on(self) -> Session | None:
        """Continue a guest that gave way; see `resume`."""
        return self._run()

    def take_over(self, frames: int) -> Session | None:
        """
        Serve the request that suspends the guest, then continue as `resume`.

        `frames` have ended since its last submit.
        """
        self.begin()
        self._look()
        return self._run(frames, is_suspended=True)

    def end_call(self, frames: int) -> Session | None:
        """End the call that the guest was in, then continue as `resume`; see `take_over`."""
        assert self.entry is not None
        self.begin()
        self._look()
        self._guest.fiber.unpark()
        entry, self.entry = self.entry, None
        self._guest.end(entry)
        self._look_at(frames)
        return self._run()

    def _run(self, frames: int = 0, *, is_suspended: bool = False) -> Session | None:
        while True:
            if self.entry is None:
                begin = next(self._calls, None)
                if begin is None or self._is_over():
                    return None
                self.entry, self._has_submitted = begin(), False
            before = self._count() - frames
            session = self._guest.run_to_submit(
                self.entry, self._is_driven, is_suspended=is_suspended, gives_way=self.gives_way
            )
            if session is not None:
                self._has_submitted = True
                return session
            self.entry, is_suspended, frames = None, False, 0
            self._look_at(frames_between(before, self._count()))

    def _look_at(self, frames: int) -> None:
        """
        Count a call that has ended, or the frames of it that have ended in a loop.

        The frame of the submit is not among them: it was counted when the guest was resumed.
        """
        self._look(max(1, frames) - self._has_submitted)

    def _look(self, calls: int = 1) -> None:
        """Count calls, or a submit that was answered at once."""
        if self._left < calls:
            raise GuestStalled(f"{self._guest.name} submitted nothing in {self._idle} calls")
        self._left -= calls
        if self._until is not None and time.monotonic() > self._until:
            raise GuestStalled(f"{self._guest.name} submitted nothing in {self._seconds:g} s")
