"""A guest between two submits that somebody outside answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from arkml.errors import GuestStalled
from arkml.guest import Guest
from arkml.runtime.entry import Entry
from arkml.sessions.session import Session

Calls = Iterator[Callable[[], Entry]]
"""The calls of a guest's life one after another; each begins one."""


class Stepping:
    """
    Runs the calls of one guest up to each submit that is answered from outside.

    `is_driven` says which those are. A guest that makes `idle` calls, or takes `seconds`, without
    one has stalled.
    """

    def __init__(
        self,
        guest: Guest,
        calls: Calls,
        is_driven: Callable[[Session], bool],
        *,
        idle: int,
        seconds: float | None,
        is_over: Callable[[], bool],
    ) -> None:
        self._guest = guest
        self._calls = calls
        self._is_driven = is_driven
        self._idle = idle
        self._seconds = seconds
        self._is_over = is_over
        self._entry: Entry | None = None

    def resume(self) -> Session | None:
        """
        The session whose submit comes next, or None when the guest has come to its end.

        The submit before must be answered. Raises GuestError; GuestStalled among them.
        """
        calls = 0
        until = None if self._seconds is None else time.monotonic() + self._seconds
        while True:
            if self._entry is None:
                begin = next(self._calls, None)
                if begin is None or self._is_over():
                    return None
                self._entry = begin()
            session = self._guest.run_to_submit(self._entry, self._is_driven)
            if session is not None:
                return session
            self._entry = None
            calls += 1
            self._look(calls, until)

    def _look(self, calls: int, until: float | None) -> None:
        if calls >= self._idle:
            raise GuestStalled(f"{self._guest.name} submitted nothing in {calls} calls")
        if until is not None and time.monotonic() > until:
            raise GuestStalled(f"{self._guest.name} submitted nothing in {self._seconds:g} s")
