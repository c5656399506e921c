"""Handover of the results of threads to an event loop that has other things to do as well."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from arkml.base.loggers import SafeLogger

log = SafeLogger(__name__)

_TURN: Final = 0.001  # seconds
_PATIENCE: Final = 0.1  # seconds; then a busy loop, or one that does not run, is left alone


class Handover:
    """
    Calls from another thread in an event loop, which do not delay work that people wait for.

    Awaited calls run in the next turn of the loop. The others are queued, and run for a millisecond
    in each turn, however many there are.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._awaited: deque[Callable[[], object]] = deque()
        self._others: deque[Callable[[], object]] = deque()
        self._is_due = False  # a turn is scheduled
        self._released = threading.Event()

    def add(self, call: Callable[[], object], *, is_awaited: bool) -> None:
        """Queue a call. Nothing is called once the loop is closed."""
        self._released.clear()
        (self._awaited if is_awaited else self._others).append(call)
        if not self._is_due:
            self._is_due = True
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._take_turn)

    def wait(self) -> None:
        """
        Block until all calls are made, or `release` is called.

        Two threads that run Python code at once only slow each other down.
        """
        if self._awaited or self._others:
            self._released.wait(_PATIENCE)

    def release(self) -> None:
        """End a `wait` of the other thread. May be called from any thread."""
        self._released.set()

    def _take_turn(self) -> None:
        self._is_due = False  # before the queues are read: more calls may be added meanwhile
        until = time.monotonic() + _TURN
        has_time = True
        while self._awaited or (self._others and has_time):
            queue = self._awaited or self._others
            try:
                queue.popleft()()
            except Exception:
                log.exception("the step of a guest could not be delivered, a bug of the host")
            has_time = queue is self._awaited or time.monotonic() <= until
        if not (self._awaited or self._others):
            self._released.set()
        elif not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._take_turn)
