"""The time limit for vetting, loading and first running of one model."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from arkml.errors import AbiError, ModelRejected, Unavailable
from arkml.policies.watchdog import Overrun, Watch, watched

PATIENCE = 5.0
"""Seconds by the clock for each of the processor: a busy machine is not the model's fault."""


class LoadTime:
    """
    The time left to load a model on this thread, counted from now on.

    `seconds` is processor time; wall time may be `PATIENCE` times as long.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._cpu_end = time.thread_time() + seconds
        self._wall_end = time.perf_counter() + PATIENCE * seconds

    def watched(self, cancel: Callable[[], None]) -> AbstractContextManager[Watch]:
        """Return a context that calls `cancel` from another thread once the time is up."""
        return watched(
            cancel,
            cpu_seconds=self._cpu_end - time.thread_time(),
            wall_seconds=self._wall_end - time.perf_counter(),
        )

    def require(self) -> None:
        """Raise the error of `late` if the time is up."""
        if time.thread_time() >= self._cpu_end:
            raise self.late(Overrun.CPU, "load")
        if time.perf_counter() >= self._wall_end:
            raise self.late(Overrun.WALL, "load")

    def late(self, reason: Overrun, what: str) -> AbiError:
        """
        Return the error for a model that did not `what` (such as "load") in time.

        A lack of processor time is the model's fault, a lack of wall time the machine's.
        """
        if reason is Overrun.CPU:
            return ModelRejected(f"the model did not {what} in {self.seconds:.3g} s of CPU")
        used = self.seconds - (self._cpu_end - time.thread_time())
        return Unavailable(
            f"the model did not {what} in {PATIENCE * self.seconds:.3g} s, in which the busy"
            f" machine gave it {used:.2g} s of CPU: load it again later"
        )
