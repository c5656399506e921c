"""The call guard: a lock that admits one call, with the epoch ticker and the handling of SIGINT."""

from __future__ import annotations

import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from arkml.errors import GuestBusy, GuestCancelled
from arkml.runtime.deadline import Ticker
from arkml.runtime.interrupts import GUARD, MAIN_THREAD, Task, is_running, runs_below


class GuardedCalls(Protocol):
    """The calls of one guest that a call guard admits."""

    @property
    def place(self) -> int:
        """Position of the guest in its lockstep."""

    @property
    def is_in_call(self) -> bool:
        """True if a call has begun and not ended, and is not parked."""

    @property
    def is_given_up(self) -> bool:
        """True if the guest has failed in a call that has not been dropped yet."""

    def fail(self, error: BaseException) -> None:
        """Drop the call in progress, and fail the guest."""

    def let_go(self) -> None:
        """Drop the call of a guest that has failed."""


class CallGuard:
    """
    Lock that admits one call at a time, of one guest or of all guests that share column memory.

    `lost` counts guests that were abandoned or closed, or got another state or module, after which
    addresses in them may have changed. `callers` holds the live guests' calls. `waiting` holds
    functions, which any thread may append: each is called with `callers` before the next call, and
    then removed; a function that a signal handler interrupted by an exception is called again.
    `dropped` collects weak references to snapshots that were dropped; if it has any, `settle` is
    called before the next call.

    A signal handler can raise on the main thread between any two instructions of Python, and so cut
    a call off outside of every `finally` that would open the guard. The next call that finds it
    shut on the main thread opens it, and fails the guests that were in calls.
    """

    __slots__ = (
        "_cancelled", "_gate", "_is_mains", "_owner", "_task", "_ticker", "_token", "callers",
        "dropped", "lost", "settle", "waiting",
    )  # fmt: skip

    def __init__(self, ticker: Ticker) -> None:
        self._gate = threading.Lock()
        self._ticker = ticker
        self._token = id(self)
        self._owner: int | None = None  # the thread, known shortly after the gate is shut
        self._is_mains = False  # the main thread has shut the gate, or has tried to
        self._cancelled = False
        self._task: weakref.ref[Task] | None = None
        self.callers: weakref.WeakSet[GuardedCalls] = weakref.WeakSet()
        self.waiting: deque[Callable[[Iterable[GuardedCalls]], object]] = deque()
        self.dropped: deque[weakref.ref[object]] = deque()
        self.settle: Callable[[], object] = self.dropped.clear
        self.lost = 0

    def begin(self, name: str) -> frozenset[int] | None:
        """
        Begin a call, or raise GuestBusy before anything is touched.

        If an earlier call was cut off, its guests fail now, and their positions are returned.
        """
        thread = threading.get_ident()
        main = thread == MAIN_THREAD
        before = self._is_mains
        if main:
            if GUARD.armed:
                GUARD.forget_lost()
            GUARD.armed += 1  # first and last: no exception of SIGINT's while the gate is shut
            self._is_mains = True
        if not self._gate.acquire(False):
            if main:
                self._is_mains = before
                GUARD.disarm()
            failed = self._recover()
            if failed is None:
                raise GuestBusy(f"{name} is in a call: one call at a time")
            self.begin(name)
            return failed
        self._owner = thread
        self._cancelled = False
        ticker = self._ticker
        ticker.running.add(self._token)
        if ticker.parked:
            ticker.wake()
        if self.waiting or self.dropped:
            self._do_waiting()
        return None

    def end(self) -> None:
        """End the call. Raises KeyboardInterrupt if a SIGINT is pending."""
        self._ticker.running.discard(self._token)
        main, self._owner = self._owner == MAIN_THREAD, None
        self._gate.release()
        if main:  # last, as in `_open`; that and `disarm` cost a call more in every frame
            self._is_mains = False
            GUARD.armed -= GUARD.armed > 0
            if GUARD.requested and not GUARD.armed:
                GUARD.disarm()

    def _do_waiting(self) -> None:
        """
        Call the functions that wait for the time between two calls; an exception ends the call.
        """
        try:
            if self.dropped:
                self.settle()
            while self.waiting:
                self.waiting[0](self.callers)
                self.waiting.popleft()
        except BaseException:
            self.end()
            raise

    def belongs_to(self, task: weakref.ref[Task]) -> None:
        """Note that the call in progress belongs to a coroutine, and may let other tasks run."""
        self._task = task
        if (coroutine := task()) is not None:
            GUARD.tasks[coroutine] = None

    def cancel(self) -> None:
        """
        Make the call in progress raise GuestCancelled at its next yield. Any thread may call it.
        """
        self._cancelled = True

    def check_interrupt(self) -> None:
        """Raise GuestCancelled after `cancel`, and KeyboardInterrupt after SIGINT."""
        if self._cancelled:
            raise GuestCancelled("the call was cancelled by its host")
        if GUARD.requested and self._owner == MAIN_THREAD:
            GUARD.requested = False
            raise KeyboardInterrupt

    @contextmanager
    def kept(self, name: str) -> Iterator[None]:
        """
        Hold the guard for a `with` block, so that no call begins; raises GuestBusy during a call.
        """
        main, before = threading.get_ident() == MAIN_THREAD, self._is_mains
        if main:
            self._is_mains = True
        if not self._gate.acquire(False):
            if main:
                self._is_mains = before
            if self._recover() is None or not self._gate.acquire(False):
                raise GuestBusy(f"{name} is in a call: one call at a time")
            self._is_mains = main
        self._owner = threading.get_ident()
        try:
            yield
        finally:
            self._open()

    def _recover(self) -> frozenset[int] | None:
        """
        Open a gate that an exception left shut, and fail the guests whose calls it cut off.

        Returns their places, or None if the gate is shut by a call that is still in progress.
        """
        if threading.get_ident() != MAIN_THREAD or not (self._is_mains and self._gate.locked()):
            return None
        if self._owner not in {None, MAIN_THREAD} or runs_below(sys._getframe()):  # noqa: SLF001
            return None
        task = None if self._task is None else self._task()
        if task is not None and is_running(task):
            return None
        failed = [caller for caller in list(self.callers) if caller.is_in_call]
        for caller in failed:
            caller.fail(GuestCancelled("an exception of a signal handler cut its call off"))
        self._ticker.running.discard(self._token)
        self._open()
        return frozenset(caller.place for caller in failed)

    def _open(self) -> None:
        main, self._owner = self._owner in {None, MAIN_THREAD}, None
        self._gate.release()
        if main:  # last: a gate that is shut, with no owner, is seen to be the main thread's
            self._is_mains = False
