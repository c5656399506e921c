"""Runs of one model on a large batch, divided among several threads."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from arkml.base.child_time import add_child_seconds

Call: TypeAlias = Callable[[], object]

WORTH = 400e-6
"""Seconds of a run on one thread from which others may help: waking one up takes some 50 µs."""

_EACH = WORTH / 4  # seconds of work for each thread that takes part
_GAIN = 0.9  # of the time alone, from which threads are used
_TRIALS = 3  # runs of each way, which are compared; the first does not count
_PERIOD = 256  # runs after which both ways are tried again
_SLOWER = 3  # runs one after another that took longer than alone, after which they are, too


class Helpers:
    """
    Threads that help with large runs of models, for all guests of a host.

    They are started by the first run that is long enough, and end with the host.

    Args:
        threads: The most threads that take part in a run, including the calling one.

    """

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._process = 0
        self._is_closed = False

    def call(self, help_out: Callable[[], float], count: int) -> list[Future[float]]:
        """
        Let up to `count` threads call a function, if the system admits them; none once closed.
        """
        if self._pool is None or self._process != os.getpid():  # a fork has none of its threads
            if self._is_closed:
                return []
            self._process = os.getpid()
            self._pool = ThreadPoolExecutor(self.threads - 1, "arkml-model")
        called: list[Future[float]] = []
        with suppress(RuntimeError):  # the system has no more threads, or the interpreter ends
            for _ in range(count):
                called.append(self._pool.submit(help_out))  # noqa: PERF401  # those before stay
        return called

    def close(self) -> None:
        """End the threads."""
        self._is_closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)


class SharedRun:
    """
    The parts of one run of a model, executed by the calling thread alone or by several.

    Both ways are measured from time to time, and the faster one is used. A thread takes one part
    after another, so that a thread that is held up delays only one part. Parts, and so results, do
    not depend on the number of threads.

    Args:
        calls: The parts, which may run at the same time.
        helpers: The threads that may help.
        most: The most threads, limited by the memory that parts need while they run.
        kept: Objects that the parts use by address, kept alive until the last thread has finished.

    """

    def __init__(self, calls: Sequence[Call], helpers: Helpers, most: int, kept: object) -> None:
        self.calls = calls
        """The parts."""
        self._helpers = helpers
        self._most = min(most, len(calls))
        self._kept = kept
        self._best = [0.0, 0.0]  # seconds of a run: alone, and together
        self._turn = 0
        self._slower = 0

    def __call__(self, check: Call | None = None) -> None:
        """Make the calls. `check` is called before each one of this thread, and may raise."""
        threads = self._threads()
        began = time.perf_counter()
        if threads > 1:
            self._run_together(threads, check)
        else:
            _take(deque(self.calls), check)
        self._learn(threads, time.perf_counter() - began)

    def _threads(self) -> int:
        """Return the number of threads for the next run."""
        alone, together = self._best
        if self._turn < _TRIALS or alone < WORTH:
            return 1
        if self._turn >= 2 * _TRIALS and together > _GAIN * alone:
            return 1
        return min(self._helpers.threads, self._most, int(alone / _EACH))

    def _learn(self, threads: int, seconds: float) -> None:
        """Note how long a run took."""
        way, turn = divmod(self._turn, _TRIALS)
        if way < len(self._best):
            if turn == 1 or (turn > 1 and seconds < self._best[way]):
                self._best[way] = seconds
        elif threads > 1:
            self._slower = self._slower + 1 if seconds > self._best[0] else 0
        self._turn += 1
        if self._turn >= _PERIOD or self._slower >= _SLOWER:
            self._turn = self._slower = 0

    def _run_together(self, threads: int, check: Call | None) -> None:
        left, failed = deque(self.calls), list[Exception]()
        called = self._helpers.call(partial(self._help, left, failed), threads - 1)
        try:
            _take(left, check)
        finally:
            left.clear()
            for one in called:
                one.cancel()  # if it has not begun
            wait(called)  # they write to the arrays of the caller
        for one in called:
            if not one.cancelled():
                add_child_seconds(one.result())
        if failed:
            raise failed[0]

    def _help(self, left: deque[Call], failed: list[Exception]) -> float:
        """Make calls on another thread; return its processor seconds."""
        began = time.thread_time()
        try:
            _take(left, None)
        except Exception as error:  # noqa: BLE001  # raised by the thread that waits
            failed.append(error)
            left.clear()
        return time.thread_time() - began


def _take(left: deque[Call], check: Call | None) -> None:
    """Make one call after another until none is left."""
    while left:
        if check is not None:
            check()
        try:
            call = left.popleft()
        except IndexError:  # another thread has taken it
            return
        call()
