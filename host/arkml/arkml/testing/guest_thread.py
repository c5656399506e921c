"""A thread that runs guests in tests, so that no signal handler interrupts a guest."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_LOOK = 0.01  # seconds between two requests to a guest to stop
_PATIENCE = 10.0  # seconds until a job that does not end is abandoned


def _nothing() -> None:
    return None


class _Job:
    """A function to call, and its result or its exception."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.running = threading.Lock()
        self.running.acquire()
        self.is_wanted = True
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            if self.is_wanted:
                self.result = self.work()
        except BaseException as error:  # noqa: BLE001  raised by the call that waits
            self.error = error
        finally:
            self.running.release()


class WorkThread:
    """
    One daemon thread and a queue of jobs for it.

    Python runs signal handlers on the main thread only. A handler that raises, such as that of a
    time limit, interrupts the wait for a job, not the job; the job is then asked to stop, and
    waited for. The waits use bare locks: if a handler raised in the middle of `threading.Event`,
    which is written in Python, the event's lock would stay taken.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="arkml-guests", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], T], cancel: Callable[[], None] = _nothing) -> T:
        """
        Run `work` on the thread, and return its result or raise its exception.

        If an exception ends the wait, `cancel` is called until the work is over.
        """
        if threading.current_thread() is self._thread:
            return work()
        job = _Job(work)
        try:
            self._jobs.put(job)
            job.running.acquire()
        except BaseException:
            job.is_wanted = False
            self._stop(cancel)
            raise
        if job.error is not None:
            raise job.error
        result: T = job.result
        return result

    def close(self) -> None:
        """End the thread after the jobs that are queued."""
        self._jobs.put(None)
        self._thread.join(_PATIENCE)

    def _stop(self, cancel: Callable[[], None]) -> None:
        """Cancel until all jobs in the queue are over."""
        fence = _Job(_nothing)
        self._jobs.put(fence)
        deadline = time.monotonic() + _PATIENCE
        while not fence.running.acquire(timeout=_LOOK) and time.monotonic() < deadline:
            cancel()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
