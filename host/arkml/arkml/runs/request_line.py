"""A line of requests to hives that wait for a thread, and can be withdrawn while they wait."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class RequestLine:
    """
    A queue of work for at most `most` threads.

    Unlike an executor's queue, it drops canceled work at once, with the objects that the work
    refers to. Any thread may use it.
    """

    def __init__(self, most: int) -> None:
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="arkml-hive")
        self._most = most
        self._busy = 0
        self._is_closed = False
        self._waiting: OrderedDict[Future[Any], Callable[[], Any]] = OrderedDict()
        self._lock = threading.RLock()  # a finalizer that withdraws work may find it taken

    def __len__(self) -> int:
        """Return how much work has not begun."""
        return len(self._waiting)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """
        Call `work` when a thread is free, and return its future. Raises RuntimeError after `close`.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the line is closed")
            self._waiting[future] = work
            is_needed = self._busy < self._most
            if is_needed:
                self._threads.submit(self._serve)
                self._busy += 1
        future.add_done_callback(self._forget)
        return future

    def close(self) -> None:
        """Cancel work that has not begun, without waiting for the rest. Safe to call twice."""
        with self._lock:
            self._is_closed = True
        for future in list(self._waiting):
            future.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _forget(self, future: Future[Any]) -> None:
        self._waiting.pop(future, None)

    def _serve(self) -> None:
        """Do the waiting work, in its order, until there is none."""
        while (first := self._next()) is not None:
            _do(*first)
            del first  # or an idle thread would keep its result

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        with self._lock:
            try:
                return self._waiting.popitem(last=False)
            except KeyError:
                self._busy -= 1
                return None


def _do(future: Future[T], work: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001  the caller of result() raises it
        future.set_exception(error)
    else:
        future.set_result(result)
    finally:
        del future, work  # or an error, whose traceback has this frame, would refer to itself
