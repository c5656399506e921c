"""The places of a guest's agents in a vector environment."""

from __future__ import annotations

import numpy as np

from arkml.envs.core.decisions import Decision, Ids
from arkml.envs.core.id_search import Places, searched
from arkml.errors import UsageError

_EMPTY = -1


class Slots:
    """
    A number of places, each for one agent until its episode ends.

    agents: int32, [count], -1 for an empty place.
    """

    def __init__(self, count: int) -> None:
        self._agents: Ids = np.full(count, _EMPTY, np.int32)
        self._followed: tuple[Ids, Places] | None = None

    @property
    def agents(self) -> Ids:
        """The agent in each place."""
        if self._followed is not None:
            agents, over = self._followed
            np.copyto(self._agents, agents)
            self._agents[over] = _EMPTY
            self._followed = None
        return self._agents

    def clear(self) -> None:
        """Free all places."""
        self.agents.fill(_EMPTY)

    def follow(self, agents: Ids, over: Places) -> None:
        """
        Put agents, int32, [count], into the places, and free the places `over`, intp, [n].

        The arrays must not change afterwards.
        """
        self._followed = agents, over  # most are followed before they are looked at

    def of(self, decision: Decision) -> Places:
        """
        Return the places of the agents of a decision, intp, [n]; -1 for agents without a place.
        """
        agents = decision.agents
        both = min(len(agents), len(self.agents))
        at_same = np.zeros(len(agents), bool)
        at_same[:both] = agents[:both] == self.agents[:both]
        places = np.where(at_same, np.arange(len(agents)), -1)
        moved = (~(at_same | decision.started)).nonzero()[0]  # those that start have no place yet
        if len(moved):
            sitting = (self.agents != _EMPTY).nonzero()[0]
            places[moved] = searched(agents[moved], self.agents, sitting)
        return places

    def leave(self, places: Places) -> None:
        """Free places, intp, [n]."""
        self.agents[places] = _EMPTY

    def enter(self, decision: Decision, agents: Ids) -> Places:
        """
        Give agents, int32, [n], the first empty places, which are returned as intp, [n].

        Raises UsageError if there are too few.
        """
        free = (self.agents == _EMPTY).nonzero()[0]
        if len(free) < len(agents):
            raise UsageError(
                f"{decision.behavior.name} has more agents than the {len(self.agents)} places of"
                " this vector environment: give num_envs"
            )
        chosen: Places = free[: len(agents)]
        self.agents[chosen] = agents
        return chosen
