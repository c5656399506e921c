"""A thread that stops loads and runs of models that take too long."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from math import inf
from threading import Condition, Thread, get_ident

_TICK = 0.01
_IDLE_TICKS = 100  # after which the thread ends: a busy host starts it once


class Overrun(Enum):
    """The limit that a watched block exceeded: processor time or wall time."""

    CPU = auto()
    WALL = auto()


class Watch:
    """One watched block. `reason` is the limit that it exceeded, or None."""

    __slots__ = ("_cancel", "_clock", "_cpu_end", "_started", "_wall_end", "reason")

    def __init__(self, cancel: Callable[[], None], cpu_seconds: float, wall_seconds: float) -> None:
        self.reason: Overrun | None = None
        self._started = time.thread_time()
        self._cancel = cancel
        self._wall_end = time.perf_counter() + wall_seconds
        self._cpu_end = self._started + cpu_seconds
        # Another thread reads this one's clock, which lives as long as the block.
        self._clock = time.pthread_getcpuclockid(get_ident()) if cpu_seconds < inf else None

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds since the block began; to be read by its own thread."""
        return time.thread_time() - self._started

    def look(self) -> None:
        """Cancel the block, once, if it has exceeded a limit."""
        if self.reason is not None:
            return
        if self._clock is not None and time.clock_gettime(self._clock) >= self._cpu_end:
            self.reason = Overrun.CPU
        elif time.perf_counter() >= self._wall_end:
            self.reason = Overrun.WALL
        if self.reason is not None:
            self._cancel()


class _Watchdog:
    """Looks at every watch in progress, from a thread that ends when there has long been none."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._watches: set[Watch] = set()
        self._is_running = False

    def add(self, watch: Watch) -> None:
        with self._changed:
            self._watches.add(watch)
            if not self._is_running:
                self._is_running = True
                Thread(target=self._run, name="arkml-model-watch", daemon=True).start()

    def remove(self, watch: Watch) -> None:
        with self._changed:  # `look` is not in progress then: no late cancel
            self._watches.discard(watch)

    def _run(self) -> None:
        idle = 0
        with self._changed:
            while idle < _IDLE_TICKS:
                idle = 0 if self._watches else idle + 1
                for watch in self._watches:
                    watch.look()
                self._changed.wait(_TICK)
            self._is_running = False


_dog = _Watchdog()


def _forget() -> None:
    global _dog
    _dog = _Watchdog()


os.register_at_fork(after_in_child=_forget)  # a child has no thread but the one that forked


@contextmanager
def watched(
    cancel: Callable[[], None],
    *,
    cpu_seconds: float = inf,
    wall_seconds: float = inf,
) -> Iterator[Watch]:
    """
    Call `cancel` from another thread once a `with` block exceeds a limit.

    cpu_seconds: limit for the thread that runs the block. Limits are checked a hundred times a
    second.
    """
    watch = Watch(cancel, cpu_seconds, wall_seconds)
    dog = _dog
    dog.add(watch)
    try:
        yield watch
    finally:
        dog.remove(watch)
