"""The points at which a trace follows, or replays, what enters a guest."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from arkml.limits import Limits
from arkml.runtime.columns.slabs import Shape
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.fiber import Fiber, FiberParts
from arkml.runtime.memory import GuestMemory


class TracePoints(Protocol):
    """What an instance asks the trace that records or replays it; most have no trace at all."""

    @property
    def path(self) -> Path | None:
        """The file that is written, or None."""

    def memory(self, limits: Limits) -> GuestMemory:
        """Return the memory through which the host writes into the guest."""

    def fiber(self, *parts: *FiberParts) -> Fiber:
        """Return the fiber that answers the guest."""

    def opened(self, index: int, handle: int, shape: Shape) -> None:
        """Take note of a new queue, at the index of its record."""

    def closed(self, index: int) -> None:
        """Take note that a queue is gone."""

    def limited(self, size: int) -> int:
        """Return the bytes to which the memory may grow, where the host would allow `size`."""

    def restored(self) -> None:
        """Take note that the guest has gone back to another state, between two calls."""

    def became(self, module: CompiledModule) -> None:
        """Take note that the instance goes on with another module. Raises UsageError."""

    def replaced(self) -> None:
        """Take note that an instance of another module has taken the place of this one."""

    def ended(self) -> None:
        """Take note that the instance is freed. A finalizer may call this."""
