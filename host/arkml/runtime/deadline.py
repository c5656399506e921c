"""Epoch ticker, which ends the turn of a running guest now and then."""

from __future__ import annotations

import threading
from queue import SimpleQueue

import wasmtime

TICK = 0.010  # seconds; a 1 ms tick more than doubled a frame's p99
TURN_TICKS = 5  # a guest is suspended when it ran this long without a look at its budget
ALERT = 2 * TICK * TURN_TICKS  # seconds before the end of a budget from which turns are short
_IDLE_TICKS = 20  # of no call in progress, then the ticker sleeps until the next one


class Ticker:
    """
    Increments the engine's epoch every TICK while a call is in progress.

    `running` holds a token for each call in progress. Adding and discarding one is atomic; after
    adding, a caller looks at `parked` and calls `wake` if it is set.
    """

    def __init__(self, engine: wasmtime.Engine) -> None:
        self._engine = engine
        self.running: set[int] = set()
        self.parked = True
        self._waking: SimpleQueue[None] = SimpleQueue()
        self._closed = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Tick from now on."""
        with self._lock:
            if self._closed:
                return
            self.parked = False
            self._waking.put(None)
            if self._thread is None:
                self._thread = threading.Thread(target=self._tick, name="arkml-ticker", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Let the ticker's thread end. Takes no lock that a finalizer could find taken."""
        self._closed = True
        self._waking.put(None)

    def close(self) -> None:
        """End the ticker's thread."""
        self.stop()
        if self._thread not in (None, threading.current_thread()):  # the collector runs anywhere
            self._thread.join()

    def _tick(self) -> None:
        idle = 0
        pause = threading.Event()
        while not self._closed:
            pause.wait(TICK)
            self._engine.increment_epoch()
            idle = 0 if self.running else idle + 1
            if idle > _IDLE_TICKS:
                self._park()
                idle = 0

    def _park(self) -> None:
        while not self._waking.empty():
            self._waking.get()
        self.parked = True
        if self.running or self._closed:  # a call or `close` came in before it could see `parked`
            self.parked = False
            return
        self._waking.get()
        self.parked = False
