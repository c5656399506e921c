"""Threads that serve a player and never keep the program from ending."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")

_Work = Callable[[], None]


class DaemonThreads(Executor):
    """
    An executor whose threads do not keep the interpreter from ending.

    The interpreter waits for a ThreadPoolExecutor at its end, before anything could tell the player
    that its call will not be answered; it does not wait for these threads.
    """

    def __init__(self, count: int, name: str) -> None:
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run `fn` as soon as a thread is free."""
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - it belongs to who waits for the future
                future.set_exception(error)

        self._work.put(work)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads after all submitted functions. Afterwards, nothing can be submitted."""
        del cancel_futures  # functions never wait in the queue for long
        for _ in self._threads:
            self._work.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
