"""Epoch ticker, which ends the turn of a running guest every few milliseconds."""

from __future__ import annotations

import _thread
import os
import threading
import time
from queue import SimpleQueue

import wasmtime

TICK = 0.010  # seconds; a 1 ms tick more than doubled a frame's p99
TURN_TICKS = 5  # a guest is suspended when it ran this long without a look at its budget
ALERT = 2 * TICK * TURN_TICKS  # seconds before the end of a budget from which turns are short
SHORT = 2 * ALERT
"""Seconds of a budget up to which all turns of a fleet's guests are short."""
_CLOSING = 0.001  # seconds between two looks whether the thread has ended
_IDLE_TICKS = 20  # of no call in progress, then the ticker sleeps until the next one


class Ticker:
    """
    Increments the engine's epoch every TICK while a call is in progress.

    `running` holds a token for each call in progress, `users` a token for each host. Adding and
    discarding a token is atomic; after adding to `running`, a caller looks at `parked` and calls
    `wake` if it is set. The thread ends with the last user.
    """

    def __init__(self, engine: wasmtime.Engine) -> None:
        self._engine = engine
        self.running: set[int] = set()
        self.users: set[int] = set()
        self.parked = True
        self._waking: SimpleQueue[None] = SimpleQueue()
        self._lock = threading.Lock()
        self._ticking: tuple[int, int] | None = None  # the process and the thread that tick

    def wake(self) -> None:
        """
        Start to increment the epoch, until no call is in progress.

        If a signal handler raises here, `parked` stays set, and the next call wakes the ticker. In
        `threading.Thread.start` the exception would end the new thread, and guests would run
        without a time limit.
        """
        with self._lock:
            if not self.users:
                return
            if not self._ticks():
                _thread.start_new_thread(self._tick, ())
            self._waking.put(None)
            self.parked = False

    def leave(self, user: int) -> None:
        """
        Remove a host, and let the thread end after the last. Takes no lock: finalizers may call it.
        """
        self.users.discard(user)
        if not self.users:
            self._waking.put(None)

    def close(self, user: int) -> None:
        """Remove a host, and wait for the end of the thread if it was the last."""
        self.leave(user)
        if self._ticking != _place():  # the collector runs anywhere
            while not self.users and self._ticks():  # another user may come in
                time.sleep(_CLOSING)

    def _ticks(self) -> bool:
        """Return whether a thread of this process ticks: the parent's does not survive a fork."""
        ticking = self._ticking
        return ticking is not None and ticking[0] == os.getpid()

    def _tick(self) -> None:
        with self._lock:
            if self._ticks():
                return  # woken twice
            self._ticking = _place()
        idle = 0
        pause = threading.Event()
        while not self._ends():
            pause.wait(TICK)
            self._engine.increment_epoch()
            idle = 0 if self.running else idle + 1
            if idle > _IDLE_TICKS:
                self._park()
                idle = 0

    def _ends(self) -> bool:
        """Return True if no user is left; the next one starts another thread."""
        if self.users:
            return False
        with self._lock:
            self.parked = True
            if self.users:  # one came in before it could see `parked`
                self.parked = False
                return False
            self._ticking = None
            self._forget_waking()  # else hosts that come and go leave theirs
            return True

    def _forget_waking(self) -> None:
        while not self._waking.empty():
            self._waking.get()

    def _park(self) -> None:
        self._forget_waking()
        self.parked = True
        if self.running or not self.users:  # changed before it could be seen that this is parked
            self.parked = False
            return
        self._waking.get()
        self.parked = False


def _place() -> tuple[int, int]:
    """Return the ids of this process and this thread."""
    return os.getpid(), threading.get_ident()
