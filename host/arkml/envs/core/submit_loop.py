"""The way of a guest from one submit that is answered from outside to the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from arkml.errors import GuestStalled
from arkml.guests.calls import CallLoop
from arkml.guests.frame_loop import FrameLoop
from arkml.runtime.exported_function import ExportedFunction
from arkml.sessions.session import Session

Calls = Iterator[Callable[[], ExportedFunction]]
"""The calls of an instance, in order; each item begins one."""


class SubmitLoop:
    """
    Runs the calls of one guest up to each submit that is answered from outside.

    `is_driven` says which those are, and `may_run_ahead` whether the frame after the present one
    may begin without the next of `calls`, which costs less. A guest that since `begin` makes `idle`
    calls, or as many submits without a decision, or takes `seconds`, has stalled. With `gives_way`
    the methods that run the guest raise GaveWay where it has run for a turn, or waits; `run_on`
    continues it then.
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
        self._calls = calls
        self._is_driven = is_driven
        self._idle = idle
        self._seconds = seconds
        self._is_over = is_over
        self._may_run_ahead = may_run_ahead
        self._left = idle
        self._until: float | None = None

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
        self._frames.run_ahead(1 if self._may_run_ahead() else 0)
        return self._run()

    def run_on(self) -> Session | None:
        """Continue a guest that gave way; see `resume`."""
        return self._run()

    def take_over(self) -> Session | None:
        """Serve what the guest is suspended in, then continue as `resume`."""
        self.begin()
        self._look()
        return self._run(is_suspended=True)

    def end_call(self) -> Session | None:
        """End the call that the guest was in, then continue as `resume`."""
        assert self.entry is not None
        self.begin()
        self._guest.fiber.unpark()
        entry, self.entry = self.entry, None
        self._guest.end(entry)
        self._look()
        return self._run()

    def _run(self, *, is_suspended: bool = False) -> Session | None:
        while True:
            if self.entry is None:
                begin = next(self._calls, None)
                if begin is None or self._is_over():
                    return None
                self.entry = begin()
            session = self._guest.run_to_submit(
                self.entry, self._is_driven, is_suspended=is_suspended, gives_way=self.gives_way
            )
            if session is not None:
                return session
            self.entry, is_suspended = None, False
            self._look()

    def _look(self) -> None:
        """Count a call, or a submit that was answered at once."""
        if not self._left:
            raise GuestStalled(f"{self._guest.name} submitted nothing in {self._idle} calls")
        self._left -= 1
        if self._until is not None and time.monotonic() > self._until:
            raise GuestStalled(f"{self._guest.name} submitted nothing in {self._seconds:g} s")
