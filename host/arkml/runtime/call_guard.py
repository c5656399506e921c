"""Guard of a call in progress: its lock, the ticker, and SIGINT."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from arkml.errors import GuestBusy, GuestCancelled
from arkml.runtime.deadline import Ticker
from arkml.runtime.interrupts import GUARD, MAIN_THREAD


class CallGuard:
    """
    Lock that admits one call at a time, of one guest or of the guests that share columns.

    `lost` counts the guests that were abandoned or closed.
    """

    __slots__ = ("_cancelled", "_gate", "_main", "_ticker", "_token", "lost")

    def __init__(self, ticker: Ticker) -> None:
        self._gate = threading.Lock()
        self._ticker = ticker
        self._token = id(self)
        self._main = False
        self._cancelled = False
        self.lost = 0

    def begin(self, name: str) -> None:
        """Begin a call, or raise GuestBusy before anything is touched."""
        main = threading.get_ident() == MAIN_THREAD
        if main:
            GUARD.armed += 1  # first and last: no exception of SIGINT's while the gate is shut
        if not self._gate.acquire(False):
            if main:
                GUARD.disarm()
            raise GuestBusy(f"{name} is in a call: one call at a time")
        self._cancelled = False
        self._main = main
        ticker = self._ticker
        ticker.running.add(self._token)
        if ticker.parked:
            ticker.wake()

    def end(self) -> None:
        """End the call. Raises KeyboardInterrupt if a SIGINT came that was not raised yet."""
        self._ticker.running.discard(self._token)
        main = self._main
        self._gate.release()
        if main:
            GUARD.disarm()

    def cancel(self) -> None:
        """Let the call in progress raise GuestCancelled when it next yields. From any thread."""
        self._cancelled = True

    def check_interrupt(self) -> None:
        """Raise GuestCancelled after `cancel`, and KeyboardInterrupt after SIGINT."""
        if self._cancelled:
            raise GuestCancelled("the call was cancelled by its host")
        if self._main and GUARD.requested:
            GUARD.requested = False
            raise KeyboardInterrupt

    @contextmanager
    def kept(self, name: str) -> Iterator[None]:
        """Keep calls out; raises GuestBusy if one is in progress."""
        if not self._gate.acquire(False):
            raise GuestBusy(f"{name} is in a call: one call at a time")
        try:
            yield
        finally:
            self._gate.release()
