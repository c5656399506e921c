"""The agents of one session as arrays, and the matching of a submit's rows with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.arrays import Marks
from arkml.batches import Floats
from arkml.envs.core.decisions import Decision, Ids
from arkml.envs.core.id_search import Indices, earlier_of, in_order, positions_of
from arkml.envs.core.transitions import (
    IS_LIVE_AFTER,
    RUNS_ON,
)

GuestIds = npt.NDArray[np.uint64]
States = npt.NDArray[np.uint32]

NOWHERE: Indices = np.zeros(0, np.intp)
"""No rows and no slots."""

_AT_ONCE = 1_024  # rows copied at once, so that few are there twice
_STATES = np.uint32(len(EpisodeState))


@dataclass(slots=True)
class AgentSlots:
    """
    Arrays of agents; each agent has one index, its slot, in all of them.

    The array `numbers` may be shared, and never changes. All others are updated in place when the
    rows of a submit continue the rows of the previous one.

    Attributes:
        ids: uint64, [n], the guest's ids of the agents.
        numbers: int32, [n], the environment's numbers of the agents.
        absent: bool, [n], False for a LIVE agent; an id is LIVE in one slot at most.
        observations: float32, [n, num_features], the last reported ones.
        waiting: float32, [n], rewards that wait for the next report.

    """

    ids: GuestIds
    numbers: Ids
    absent: Marks
    observations: Any  # Floats; JoinedRows of slots that are only looked at
    waiting: Floats

    @staticmethod
    def none(num_features: int) -> AgentSlots:
        """Return an object without slots."""
        return AgentSlots(
            np.zeros(0, np.uint64), np.zeros(0, np.int32), np.zeros(0, bool),
            np.zeros((0, num_features), np.float32), np.zeros(0, np.float32),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.ids)

    def chosen(self, index: Any) -> AgentSlots:
        """Return copies of some of the slots."""
        return AgentSlots(
            self.ids[index], self.numbers[index], self.absent[index], self.observations[index],
            self.waiting[index],
        )  # fmt: skip

    def copied(self) -> AgentSlots:
        """Return a copy, whose arrays change independently."""
        return AgentSlots(
            self.ids.copy(), self.numbers, self.absent.copy(), self.observations.copy(),
            self.waiting.copy(),
        )  # fmt: skip

    def joined(self, more: AgentSlots) -> AgentSlots:
        """
        Return these slots followed by others; this object if there are no others.

        Observations are not copied: there may be many agents.
        """
        if not len(more):
            return self
        return AgentSlots(
            np.concatenate((self.ids, more.ids)),
            np.concatenate((self.numbers, more.numbers)),
            np.concatenate((self.absent, more.absent)),
            JoinedRows(self.observations, more.observations),
            np.concatenate((self.waiting, more.waiting)),
        )


class JoinedRows:
    """Rows of two arrays of one width, presented as one array without copying all of them."""

    def __init__(self, first: Floats, more: Floats) -> None:
        self._first = first
        self._more = more

    def __getitem__(self, rows: Indices) -> Floats:
        """Return some rows, intp, [n], as a copy."""
        count = len(self._first)
        found = np.empty((len(rows), self._first.shape[1]), np.float32)
        for start in range(0, len(rows), _AT_ONCE):
            some, into = rows[start : start + _AT_ONCE], found[start : start + _AT_ONCE]
            is_first = some < count
            into[is_first] = self._first[some[is_first]]
            into[~is_first] = self._more[some[~is_first] - count]
        return found


class Moves(NamedTuple):
    """
    The rows of one submit, matched with agents as transitions of the table in `transitions`.

    events: intp, [m], the rows whose agent does more than continue, in order. codes: int, [m], the
    numbers of their transitions. slots: intp, [n], the slot of an agent that is LIVE before the
    submit, or -1, as in the later rows of an id. earlier: intp, [n], the previous row with the same
    id, or -1; None if all ids differ. missing: intp, [k], the slots of LIVE agents without a row.
    """

    events: Indices
    codes: Indices
    slots: Indices
    earlier: Indices | None
    missing: Indices

    def known(self) -> tuple[Indices, Indices]:
        """
        Return the rows whose agent was LIVE before the submit, and their slots: intp, [m] each.
        """
        rows = (self.slots >= 0).nonzero()[0]
        return rows, self.slots[rows]

    def numbers(self, before: AgentSlots, begun: Indices, fresh: Ids) -> Ids:
        """
        Return the agents' numbers, int32, [n]; rows that start an episode get the numbers `fresh`.
        """
        numbers = np.full(len(self.slots), -1, np.int32)
        rows, slots = self.known()
        numbers[rows] = before.numbers[slots]
        numbers[begun] = fresh
        if self.earlier is None:
            return numbers
        origins = np.where(self.earlier < 0, np.arange(len(numbers)), self.earlier)
        origins[begun] = begun
        while not np.array_equal(further := origins[origins], origins):
            origins = further  # each turn doubles the way back
        found: Ids = numbers[origins]
        return found

    def previous(
        self, closed: Indices, before: AgentSlots, decision: Decision
    ) -> tuple[Ids, Floats]:
        """
        Return numbers and last observations of the agents that had the ids of rows `closed`.

        Rows are intp, [m], the results int32, [m], and float32, [m, num_features]. `decision` has
        the rows of the submit.
        """
        slots = self.slots[closed]
        if self.earlier is None:
            return before.numbers[slots], before.observations[slots]
        earlier = self.earlier[closed]
        numbers, observations = decision.agents[earlier], decision.observations[earlier]
        first = (earlier < 0).nonzero()[0]
        numbers[first] = before.numbers[slots[first]]
        observations[first] = before.observations[slots[first]]
        return numbers, observations


def match(ids: GuestIds, states: States, before: AgentSlots) -> Moves:
    """Match the rows of a submit, with ids, uint64, [n], and states, uint32, [n], to agents."""
    live = ~before.absent
    slots, earlier = in_order(ids, before.ids, live.nonzero()[0]), None
    if slots is None and (earlier := earlier_of(ids)) is None:
        slots = positions_of(ids, before.ids, live)
    if slots is not None:
        was_absent = slots < 0
    else:
        assert earlier is not None
        slots = np.full(len(ids), -1)
        first, later = (earlier < 0).nonzero()[0], (earlier >= 0).nonzero()[0]
        slots[first] = positions_of(ids[first], before.ids, live)
        was_absent = slots < 0
        was_absent[later] = ~IS_LIVE_AFTER[states[earlier[later]]]
    codes = codes_of(states, was_absent)
    events = (~RUNS_ON[codes]).nonzero()[0]
    live[slots[slots >= 0]] = False
    missing = live.nonzero()[0]
    return Moves(events, codes[events], slots, earlier, missing)


def highest_of(ids: GuestIds, before: GuestIds) -> int:
    """
    Return the highest agent id of a submit, uint64, [n], and of the ids before it, uint64, [m].
    """
    return max(int(ids.max()), int(before.max(initial=0)))


def codes_of(states: States, was_absent: Marks) -> Indices:
    """Return the numbers of the transitions of rows, intp, [n], from their states, uint32, [n]."""
    return (states + was_absent * _STATES).astype(np.intp)
