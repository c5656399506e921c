"""The lock that admits one call of an environment at a time."""

from __future__ import annotations

import sys
import threading

from arkml.errors import GuestBusy
from arkml.runtime.interrupts import MAIN_THREAD, runs_below


class NonReentrant:
    """
    A context manager that refuses a second entry, from any thread.

    An exception of a signal handler, on the main thread, may keep `__exit__` from running: an entry
    that is lost like that is forgotten by the next one.
    """

    __slots__ = ("_name", "_thread")

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: int | None = None  # that has entered

    def __enter__(self) -> None:
        """Enter. Raises GuestBusy, without effect, if a call is in progress."""
        thread = threading.get_ident()
        if self._thread is not None and not self._is_lost(thread):
            raise GuestBusy(f"the environment of {self._name} is in a call: one call at a time")
        self._thread = thread

    def __exit__(self, *error: object) -> None:
        self._thread = None

    def _is_lost(self, thread: int) -> bool:
        is_mains = self._thread == thread == MAIN_THREAD
        return is_mains and not runs_below(sys._getframe(1))  # noqa: SLF001
