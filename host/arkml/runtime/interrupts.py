"""SIGINT while a guest runs: a flag for the call loop instead of an exception on a fiber."""

from __future__ import annotations

import contextlib
import signal
import threading
from types import FrameType
from typing import Any

MAIN_THREAD = threading.main_thread().ident


class InterruptGuard:
    """
    Turns SIGINT into a flag while a guest call is in flight on the main thread.

    An exception raised on a fiber aborts the process, so the handler only sets `requested`; the
    call loop looks at it each time the guest is suspended, cleans up and raises KeyboardInterrupt.
    Outside guest calls the handler that was there before is called. `armed` counts
    the calls of the main thread that are in flight.
    """

    def __init__(self) -> None:
        self.armed = 0
        self.requested = False
        self._before: Any = None
        self._users = 0

    def install(self) -> None:
        """Take SIGINT over, if this is the main thread and nobody replaced Python's own handler."""
        self._users += 1
        if self._users > 1 or threading.get_ident() != MAIN_THREAD:
            return
        before = signal.getsignal(signal.SIGINT)
        if before is signal.default_int_handler:
            self._before = before
            signal.signal(signal.SIGINT, self._handle)

    def uninstall(self) -> None:
        """Give SIGINT back when the last user is gone."""
        self._users -= 1
        if self._users or self._before is None or threading.get_ident() != MAIN_THREAD:
            return
        if signal.getsignal(signal.SIGINT) == self._handle:
            with contextlib.suppress(ValueError):  # the interpreter is shutting down
                signal.signal(signal.SIGINT, self._before)
        self._before = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.armed:
            self.requested = True
        else:
            self._before(number, frame)


GUARD = InterruptGuard()
"""One per process: signal handlers are per process too."""
