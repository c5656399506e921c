"""Runtimes: the brains of one guest that are executed together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from arkml.policies.network import Network
from arkml.sessions.brains import COUNTABLE, Brain
from arkml.sessions.futures import Future, ResultType
from arkml.sessions.handles import HandleTable
from arkml.sessions.leases import Lease

NETWORK: ResultType[Network] = ResultType("brain")


@dataclass(slots=True)
class Load:
    """A brain that is being loaded for a runtime. One that failed stays failed."""

    runtime: int
    future: Future[Network]
    lease: Lease
    is_told: bool = False


@dataclass(slots=True)
class Runtime:
    """
    Brains by handle, the one that has not run for longest first, and loads by handle.

    The handles of both live in the guest's table; a runtime says which of them are its own.
    """

    brains: dict[int, Brain] = field(default_factory=dict)
    loads: set[int] = field(default_factory=set)

    def execute(self, seconds: float | None, stopwatch: Callable[[], float]) -> list[int]:
        """
        Answer what is queued and return the agents, at most as many as can be counted.

        Brains run whole, and at least one does; no further one starts once `seconds` are over.
        """
        for brain in self.brains.values():
            brain.forget_results()
        start = stopwatch()
        agents: list[int] = []
        for handle, brain in list(self.brains.items()):
            if not brain.queued:
                continue
            is_over = seconds is not None and agents and stopwatch() - start >= seconds
            if is_over or len(agents) == COUNTABLE:
                break
            self.brains[handle] = self.brains.pop(handle)
            agents += brain.run(COUNTABLE - len(agents))
        return agents


def destroy(table: HandleTable[Any], handle: int) -> None:
    """Forget a runtime, its brains and its loads."""
    runtime = table.remove(handle, Runtime)
    for load in runtime.loads:
        table.remove(load, Load).lease.release()
    for brain in runtime.brains:
        table.remove(brain, Brain).close()
