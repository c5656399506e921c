"""The points at which a trace records, or replays, the inputs of a guest."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from arkml.limits import Limits
from arkml.runtime.columns.slabs import Shape
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.fiber import Fiber, FiberParts
from arkml.runtime.memory import GuestMemory


class TracePoints(Protocol):
    """
    The interface between an instance and the trace that records or replays it, if there is one.
    """

    @property
    def path(self) -> Path | None:
        """The file that the trace is written to, or None."""

    def memory(self, limits: Limits) -> GuestMemory:
        """Return the memory through which the host writes into the guest."""

    def fiber(self, *parts: *FiberParts) -> Fiber:
        """Return the fiber that runs the guest's calls and answers its imports."""

    def opened(self, index: int, handle: int, shape: Shape) -> None:
        """Note that the queue of a session was opened; `index` is that of its record."""

    def closed(self, index: int) -> None:
        """Note that the queue of a session was closed."""

    def limited(self, size: int) -> int:
        """Return the bytes to which the memory may grow, given that the host would allow `size`."""

    def restored(self) -> None:
        """Note that the guest has returned to another state, between two calls."""

    def became(self, module: CompiledModule) -> None:
        """Note that the instance continues with another module. Raises UsageError."""

    def replaced(self) -> None:
        """Note that an instance of another module has replaced this one."""

    def ended(self) -> None:
        """Note that the instance was freed. A finalizer may call this."""
