"""Runtimes: groups of one guest's brains (loaded models) that are executed together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from arkml.policies.demands import BrainDemand
from arkml.policies.network import Network
from arkml.sessions.brains import COUNTABLE, Brain
from arkml.sessions.futures import Future, ResultType
from arkml.sessions.handles import HandleTable
from arkml.sessions.leases import Lease

NETWORK: ResultType[Network] = ResultType("brain")


@dataclass(slots=True)
class Load:
    """
    A brain that is being loaded for a runtime, or that failed to load.

    `demand` is set once the brain is loaded, and `network` if the host's policy was replaced since.
    """

    runtime: int
    future: Future[Network]
    lease: Lease
    demand: BrainDemand | None = None
    network: Network | None = None
    is_logged: bool = False


@dataclass(slots=True)
class Runtime:
    """
    The brains of a runtime by handle, least recently executed first, and handles of its loads.

    Brains and loads are also in the guest's handle table.
    """

    brains: dict[int, Brain] = field(default_factory=dict)
    loads: set[int] = field(default_factory=set)

    def execute(self, seconds: float, stopwatch: Callable[[], float]) -> list[int]:
        """
        Answer queued observations, and return the agents that were answered, at most `COUNTABLE`.

        At least one brain is executed; no further brain is started after `seconds`, such as 0.002.
        """
        for brain in self.brains.values():
            brain.forget_results()
        start = stopwatch()
        agents: list[int] = []
        for handle, brain in list(self.brains.items()):
            if not brain.queued:
                continue
            is_over = agents and stopwatch() - start >= seconds
            if is_over or len(agents) == COUNTABLE:
                break
            self.brains[handle] = self.brains.pop(handle)
            agents += brain.run(COUNTABLE - len(agents))
        return agents


def destroy_all(table: HandleTable[Any]) -> None:
    """Remove all runtimes, their brains and their loads from `table`."""
    for handle, item in table:
        if isinstance(item, Runtime):
            destroy(table, handle)


def destroy(table: HandleTable[Any], handle: int) -> None:
    """Remove a runtime, its brains and its loads from `table`."""
    runtime = table.remove(handle, Runtime)
    for load in runtime.loads:
        table.remove(load, Load).lease.release()
    for brain in runtime.brains:
        table.remove(brain, Brain).close()
