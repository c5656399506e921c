"""The assignment of a guest's agents to slots, the sub-environments of a vector environment."""

from __future__ import annotations

import numpy as np

from arkml.batches import Floats
from arkml.envs.core.decisions import Decision, Ids
from arkml.envs.core.id_search import Indices, in_order, searched
from arkml.errors import UsageError

_EMPTY = -1


class Slots:
    """
    A fixed number of slots, one per sub-environment, each of one agent until its episode ends.

    Attributes:
        waiting: int32, agents that found no empty slot, and get one with the next submit.
        acting: intp, [m], the slot of each agent that needs an action, -1 for an agent without one;
            None if row k of the submit belongs to slot k.
        in_order: `agents` of the latest decision if row k belongs to slot k, else None.
        acted: float32, [count, num_actions], the latest actions, None before the first.

    """

    def __init__(self, count: int) -> None:
        self.waiting: Ids = np.zeros(0, np.int32)
        self.acting: Indices | None = None
        self.in_order: Ids | None = None
        self.acted: Floats | None = None
        self._agents: Ids = np.full(count, _EMPTY, np.int32)
        self._followed: tuple[Ids, Indices] | None = None
        self._order = np.arange(count)

    @property
    def agents(self) -> Ids:
        """The agent in each slot, int32, [count], -1 for an empty one."""
        if self._followed is not None:
            agents, over = self._followed
            np.copyto(self._agents, agents)
            self._agents[over] = _EMPTY
            self._followed = None
        return self._agents

    def clear(self) -> None:
        """Empty all slots, for a new instance of the guest."""
        self.agents.fill(_EMPTY)
        self.waiting = np.zeros(0, np.int32)

    def follow(self, agents: Ids, over: Indices) -> None:
        """
        Put agents, int32, [count], into the slots, and free the slots `over`, intp, [n].

        The arrays must not change afterwards.
        """
        self._followed = agents, over  # most are followed before they are looked at

    def of(self, decision: Decision) -> Indices:
        """Return the slot of each row of a decision, intp, [n]; -1 for agents without a slot."""
        agents = decision.agents
        taken = (self.agents != _EMPTY).nonzero()[0]
        if (found := in_order(agents, self.agents, taken)) is not None:
            return found
        both = min(len(agents), len(self.agents))
        at_same = np.zeros(len(agents), bool)
        at_same[:both] = agents[:both] == self.agents[:both]
        indices = np.where(at_same, np.arange(len(agents)), -1)
        moved = (~(at_same | decision.started)).nonzero()[0]  # those that start have no slot yet
        if len(moved):
            indices[moved] = searched(agents[moved], self.agents, taken)
        return indices

    def leave(self, indices: Indices) -> None:
        """Empty the slots at `indices`, intp, [n]."""
        self.agents[indices] = _EMPTY

    def enter(self, decision: Decision, agents: Ids) -> Indices:
        """
        Put agents, int32, [n], into the first empty slots, and return these as intp, [n].

        Raises UsageError if there are too few.
        """
        free = (self.agents == _EMPTY).nonzero()[0]
        if len(free) < len(agents):
            raise UsageError(
                f"{decision.behavior.name} has more agents than the {len(self.agents)} places of"
                " this vector environment: give num_envs"
            )
        chosen: Indices = free[: len(agents)]
        self.agents[chosen] = agents
        return chosen

    def enter_waiting(self, decision: Decision) -> None:
        """Put the waiting agents into empty slots. Raises as `enter`."""
        if len(self.waiting):
            self.enter(decision, self.waiting)
            self.waiting = np.zeros(0, np.int32)

    def plan(self, decision: Decision, indices: Indices) -> tuple[Indices, Indices]:
        """
        Note the order of the next actions, for a decision whose rows belong to the slots `indices`.

        Returns the rows that need an action and their slots, -1 for none: intp, [m] each.
        """
        deciding = (~decision.ended).nonzero()[0]
        acting = indices[deciding]
        # Indices of agents that began with another row of this submit:
        again = ((acting < 0) & ~decision.started[deciding]).nonzero()[0]
        if len(again):
            acting[again] = self.of(decision)[deciding[again]]
        is_in_order = (
            len(indices) == len(self._order)
            and bool((indices == self._order).all())
            and bool((decision.submit_rows >= 0).all())
        )
        self.in_order = decision.agents if is_in_order else None
        self.acting = None if is_in_order else acting
        return deciding, acting

    def chosen(self, values: Floats, decision: Decision) -> Floats:
        """
        Return the actions for `acting`, float32, [m, num_actions]; agents without a slot stay idle.
        """
        assert self.acting is not None
        chosen: Floats = values.take(self.acting, 0)
        waits = self.acting < 0
        if waits.any():
            chosen[waits] = decision.idle_actions()[waits]
        return chosen
