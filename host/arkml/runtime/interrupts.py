"""SIGINT while a guest runs: a flag for the call loop instead of an exception on a fiber."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

MAIN_THREAD = threading.main_thread().ident
_PACKAGE = "arkml."


class InterruptGuard:
    """
    Turns SIGINT into a flag while a guest call is in progress on the main thread.

    An exception raised on a fiber aborts the process, so the handler only sets `requested`; the
    call loop looks at it each time the guest is suspended, cleans up and raises KeyboardInterrupt.
    So it is where guests are made and freed: half of that is memory that is freed twice. And in
    our finalizers, which would swallow the exception: the next of these raises it.
    In a policy of the embedder's, which runs on no fiber, the exception is raised at once.
    Elsewhere the handler that was there before is called. `armed` counts what of the main thread
    is not to be interrupted.
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
            signal.signal(signal.SIGINT, self.interrupt)

    def uninstall(self) -> None:
        """Give SIGINT back when the last user is gone."""
        self._users -= 1
        if self._users or self._before is None or threading.get_ident() != MAIN_THREAD:
            return
        if signal.getsignal(signal.SIGINT) == self.interrupt:
            with contextlib.suppress(ValueError):  # the interpreter is shutting down
                signal.signal(signal.SIGINT, self._before)
        self._before = None

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """On the main thread SIGINT's exception comes after this, and not in the middle of it."""
        if threading.get_ident() != MAIN_THREAD:
            yield
            return
        self.armed += 1
        try:
            yield
        finally:
            self.disarm()

    def disarm(self) -> None:
        """SIGINT is an exception again; raises the one that came meanwhile."""
        self.armed -= 1
        if self.requested and not self.armed:
            self.requested = False
            raise KeyboardInterrupt

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGINT, or another signal that is to interrupt as SIGINT does."""
        if (self.armed and not _in_embedders_code(frame)) or _in_finalizer(frame):
            self.requested = True
        else:
            self.requested = False
            (self._before or signal.default_int_handler)(number, frame)


def _in_embedders_code(frame: FrameType | None) -> bool:
    """Whether the last function of the package in the stack is `policies.given.call_embedder`."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(_PACKAGE):
            return frame.f_code.co_name == "call_embedder"
        frame = frame.f_back
    return False


def _in_finalizer(frame: FrameType | None) -> bool:
    """Whether a `__del__` of ours is in progress."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if frame.f_code.co_name == "__del__" and module.startswith(_PACKAGE):
            return True
        frame = frame.f_back
    return False


GUARD = InterruptGuard()
"""One per process: signal handlers are per process too."""
