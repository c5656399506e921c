"""Handling of SIGINT while a guest runs: it sets a flag for the call loop, and raises nothing."""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
import time
import weakref
from collections.abc import Coroutine
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any, TypeAlias

MAIN_THREAD = threading.main_thread().ident or 0
_PACKAGE = "arkml."
_ENTRANCES = frozenset({"__del__", "call_embedder"})
_PASSED = frozenset({"contextlib", "copy"})  # of a block that this package begins, of its copies

Task: TypeAlias = Coroutine[Any, Any, Any]


class InterruptGuard:
    """
    A SIGINT handler that sets a flag while a guest call is in progress on the main thread.

    An exception raised on a fiber aborts the process, so the handler only sets `requested`; the
    call loop reads it each time the guest is suspended, cleans up and raises KeyboardInterrupt.
    The flag is also set while guests are created and freed, because an exception in the middle
    could free memory twice; `disarm` raises it afterwards. In a policy of the embedder, which runs
    on no fiber, the exception is raised at once. In a finalizer or a callback of the collector,
    where Python drops exceptions, the signal is put off. Otherwise the previous handler is called.
    `armed` counts the sections in progress on the main thread that must not be interrupted. If the
    handler of another signal raises in such a section, the count stays too high until
    `forget_lost` corrects it.
    """

    def __init__(self) -> None:
        self.armed = 0
        self.requested = False
        self.tasks: weakref.WeakKeyDictionary[Task, None] = weakref.WeakKeyDictionary()
        """Coroutines of calls that are in progress while other tasks run, as keys."""
        self._before: Any = None
        self._users = 0

    def install(self) -> None:
        """Install the handler, on the main thread and if Python's own handler is installed."""
        self._users += 1
        if threading.get_ident() != MAIN_THREAD:
            return  # and the next user may be on it
        before = signal.getsignal(signal.SIGINT)
        if before is signal.default_int_handler:
            self._before = before
            signal.signal(signal.SIGINT, self.interrupt)

    def uninstall(self) -> None:
        """Restore the previous handler for the last user."""
        self._users -= 1
        if self._users or self._before is None or threading.get_ident() != MAIN_THREAD:
            return
        if signal.getsignal(signal.SIGINT) == self.interrupt:
            with contextlib.suppress(ValueError):  # the interpreter is shutting down
                signal.signal(signal.SIGINT, self._before)
        self._before = None

    def is_requested(self) -> bool:
        """Return True on the main thread if a SIGINT is to end the call in progress."""
        return self.requested and threading.get_ident() == MAIN_THREAD

    def held_back(self) -> AbstractContextManager[None]:
        """Delay KeyboardInterrupt on the main thread to the end of a `with` block."""
        return _HeldBack(self) if threading.get_ident() == MAIN_THREAD else _NOT_HELD_BACK

    def forget_lost(self) -> None:
        """Set `armed` to 0 if no section is in progress. For the main thread."""
        if not (runs_below(sys._getframe(1)) or self._runs_task()):  # noqa: SLF001
            self.armed = 0

    def _runs_task(self) -> bool:
        """Return True if the code of a task is running; other threads may add tasks meanwhile."""
        return any(
            (task := known()) is not None and is_running(task) for known in self.tasks.keyrefs()
        )

    def disarm(self) -> None:
        """Leave a section that must not be interrupted; raise a delayed KeyboardInterrupt."""
        self.armed -= self.armed > 0
        if self.requested and not self.armed:
            self.requested = False
            raise KeyboardInterrupt

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGINT, or another signal that is to interrupt a call."""
        if put_off(number, frame):
            return
        if self.armed and not (_in_package(frame) or self._runs_task()):
            self.armed = 0
        if self.armed and not _in_embedders_code(frame):
            self.requested = True
        else:
            self.requested = False
            (self._before or signal.default_int_handler)(number, frame)


class _HeldBack:
    """A block to whose end KeyboardInterrupt is delayed. Of a generator it would take longer."""

    __slots__ = ("_guard",)

    def __init__(self, guard: InterruptGuard) -> None:
        self._guard = guard

    def __enter__(self) -> None:
        self._guard.armed += 1

    def __exit__(self, *_: object) -> None:
        self._guard.disarm()


_NOT_HELD_BACK = nullcontext()


def is_running(task: Task) -> bool:
    """Return whether a coroutine has not ended yet."""
    return task.cr_frame is not None  # type: ignore[attr-defined]  # of every `async def`


def runs_below(frame: FrameType) -> bool:
    """
    Return whether a call of this package was in progress when the innermost frames began.

    The innermost frames run from `frame` outwards to the first one of another package, of a
    finalizer, which may run within any function, or of `call_embedder`. A frame of this package
    further out means that a call is in progress there.
    """
    at: FrameType | None = frame
    while at is not None and _is_ours(at) and at.f_code.co_name not in _ENTRANCES:
        at = at.f_back
        while at is not None and at.f_globals.get("__name__") in _PASSED:
            at = at.f_back
    return at is not None and _in_package(at.f_back)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(_PACKAGE)


def _in_package(frame: FrameType | None) -> bool:
    while frame is not None:
        if _is_ours(frame):
            return True
        frame = frame.f_back
    return False


def _in_embedders_code(frame: FrameType | None) -> bool:
    """Return whether the innermost function of the package is `policies.given.call_embedder`."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(_PACKAGE):
            return frame.f_code.co_name == "call_embedder"
        frame = frame.f_back
    return False


_DROPPING = {
    "arkml.runtime.account": ("_note_collection",),
    "importlib._bootstrap": ("cb",),
    "logging": ("_removeHandlerRef",),
    "weakref": ("__call__", "remove"),
    "_weakrefset": ("_remove",),
}
"""Names of functions, by module, that Python calls in places where it drops their exceptions."""
_LATER = 0.002  # seconds; a look at all objects of a process takes a few times that


def put_off(number: int, frame: FrameType | None) -> bool:
    """
    Send a signal again in 2 ms if Python would drop an exception now, else return False.

    Signals that come while the collector works are handled in its callbacks, and in finalizers:
    https://docs.python.org/3/library/signal.html#execution-of-python-signal-handlers
    """
    while frame is not None:
        name = frame.f_code.co_name
        if name == "__del__" or name in _DROPPING.get(str(frame.f_globals.get("__name__")), ()):
            _thread.start_new_thread(_send_again, (number,))  # takes no lock of threading's
            return True
        frame = frame.f_back
    return False


def _send_again(number: int) -> None:
    time.sleep(_LATER)
    if sys.platform == "win32":
        _thread.interrupt_main(number)
    else:
        signal.pthread_kill(MAIN_THREAD, number)  # which ends a wait of the main thread as well


GUARD = InterruptGuard()
"""The guard of the process, because signal handlers belong to the process."""
