"""The places that the agents of a guest have in a vector environment."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from arkml.envs.core.decisions import Decision, Ids
from arkml.errors import UsageError

_EMPTY = -1

Places = npt.NDArray[np.intp]


class Slots:
    """
    `count` places; an agent keeps its own until its episode has ended.

    agents: int32, [count], -1 for an empty place.
    """

    def __init__(self, count: int) -> None:
        self.agents: Ids = np.full(count, _EMPTY, np.int32)
        self._places: dict[int, int] = {}

    def clear(self) -> None:
        self.agents[:] = _EMPTY
        self._places.clear()

    def of(self, agents: Ids) -> Places:
        """Return the places of agents, intp, [n], -1 for those that have none."""
        return np.array([self._places.get(agent, _EMPTY) for agent in agents.tolist()], np.intp)

    def leave(self, agents: Ids) -> None:
        """Free the places of agents."""
        for agent in agents.tolist():
            self.agents[self._places.pop(agent)] = _EMPTY

    def enter(self, decision: Decision, agents: Ids) -> Places:
        """Give agents the first empty places. Raises UsageError if there are too few."""
        free = np.flatnonzero(self.agents == _EMPTY)
        if len(free) < len(agents):
            raise UsageError(
                f"{decision.behavior.name} has more agents than the {len(self.agents)} places of"
                " this vector environment: give num_envs"
            )
        chosen = free[: len(agents)]
        self.agents[chosen] = agents
        self._places.update(zip(agents.tolist(), chosen.tolist(), strict=True))
        return chosen
