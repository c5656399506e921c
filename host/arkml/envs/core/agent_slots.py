"""Agents of one session as arrays, and the rows of a submit matched with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.batches import Floats
from arkml.envs.core.decisions import Decision, Ids
from arkml.envs.core.id_search import Places, earlier_of, places_of
from arkml.envs.core.transitions import (
    IS_LIVE_AFTER,
    IS_ONE_REPORT,
    RUNS_ON,
)
from arkml.marks import Marks

GuestIds = npt.NDArray[np.uint64]
States = npt.NDArray[np.uint32]

NOWHERE: Places = np.zeros(0, np.intp)
"""No rows and no slots."""

_AT_ONCE = 1_024  # rows copied at once, so that few are there twice
_RUNNING, _STATES = np.uint32(EpisodeState.RUNNING), np.uint32(len(EpisodeState))


@dataclass(frozen=True, slots=True)
class AgentSlots:
    """
    Agents by slot.

    ids: uint64, [n]. numbers: int32, [n]. absent: bool, [n], False where the agent is LIVE; an id
    is LIVE in one slot at most. observations: float32, [n, num_features], the last reported ones.
    waiting: float32, [n], rewards that wait for the next report.
    """

    ids: GuestIds
    numbers: Ids
    absent: Marks
    observations: Any  # Floats; JoinedRows of slots that are only looked at
    waiting: Floats

    @staticmethod
    def none(num_features: int) -> AgentSlots:
        """Return no slots."""
        return AgentSlots(
            np.zeros(0, np.uint64), np.zeros(0, np.int32), np.zeros(0, bool),
            np.zeros((0, num_features), np.float32), np.zeros(0, np.float32),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.ids)

    def chosen(self, index: Any) -> AgentSlots:
        """Return some of the slots, as copies."""
        return AgentSlots(
            self.ids[index], self.numbers[index], self.absent[index], self.observations[index],
            self.waiting[index],
        )  # fmt: skip

    def joined(self, more: AgentSlots) -> AgentSlots:
        """
        Return these slots, followed by others; this object if nothing follows.

        Observations are not copied: there may be those of many agents.
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
    """Rows of two arrays of one width as those of one array, without a copy of all of them."""

    def __init__(self, first: Floats, more: Floats) -> None:
        self._first = first
        self._more = more

    def __getitem__(self, places: Places) -> Floats:
        """Return the rows at `places`, intp, [n], as a copy."""
        count = len(self._first)
        found = np.empty((len(places), self._first.shape[1]), np.float32)
        for start in range(0, len(places), _AT_ONCE):
            some, into = places[start : start + _AT_ONCE], found[start : start + _AT_ONCE]
            is_first = some < count
            into[is_first] = self._first[some[is_first]]
            into[~is_first] = self._more[some[~is_first] - count]
        return found


class Moves(NamedTuple):
    """
    The rows of one submit as moves of agents by the table.

    events: intp, [m], the rows whose agent does more than run on, in order, and codes: int, [m],
    the numbers of their transitions. was_absent: bool, [n], False where the agent is LIVE before
    the row. places: intp, [n], the slot of an agent that is LIVE before the submit, or -1, as in
    the later rows of an id; None if each such agent is in the slot of its row. earlier: intp, [n],
    the previous row with the same id, or -1; None if all ids differ. missing: intp, [k], the slots
    of LIVE agents without a row.
    """

    events: Places
    codes: Places
    was_absent: Marks
    places: Places | None
    earlier: Places | None
    missing: Places

    @property
    def is_one_report(self) -> bool:
        """True if each row reports one episode, which does not begin and end with it."""
        return bool(np.count_nonzero(IS_ONE_REPORT[self.codes]) == len(self.codes))

    def known(self) -> tuple[Places, Places]:
        """Return the rows whose agent is LIVE before the submit, and its slots: intp, [m] each."""
        if self.places is None:
            rows = (~self.was_absent).nonzero()[0]
            return rows, rows
        rows = (self.places >= 0).nonzero()[0]
        return rows, self.places[rows]

    def numbers(self, slots: AgentSlots, begun: Places, fresh: Ids) -> Ids:
        """Return the agents' numbers, int32, [n]; those of the rows that begin are `fresh`."""
        if self.places is None:
            numbers = slots.numbers.copy()
        else:
            numbers = np.full(len(self.places), -1, np.int32)
            rows, places = self.known()
            numbers[rows] = slots.numbers[places]
        numbers[begun] = fresh
        if self.earlier is None:
            return numbers
        origins = np.where(self.earlier < 0, np.arange(len(numbers)), self.earlier)
        origins[begun] = begun
        while not np.array_equal(further := origins[origins], origins):
            origins = further  # each turn doubles the way back
        found: Ids = numbers[origins]
        return found

    def previous(self, closed: Places, slots: AgentSlots, decision: Decision) -> tuple[Ids, Floats]:
        """
        Return numbers and last observations of the agents whose id rows `closed`, intp, [m], take.

        They are int32, [m], and float32, [m, num_features]. `decision` has the rows of the submit.
        """
        places = closed if self.places is None else self.places[closed]
        if self.earlier is None:
            return slots.numbers[places], slots.observations[places]
        earlier = self.earlier[closed]
        numbers, observations = decision.agents[earlier], decision.observations[earlier]
        before = (earlier < 0).nonzero()[0]
        numbers[before] = slots.numbers[places[before]]
        observations[before] = slots.observations[places[before]]
        return numbers, observations


class SlotMatcher:
    """
    Finds the agents of a submit's rows among the slots.

    Most guests keep the order of their agents and give new ones rising ids, above all of before:
    then a comparison finds them. All else takes sorted searches. `highest` is the highest id of the
    agents that are there already.
    """

    def __init__(self, highest: int = 0) -> None:
        self._highest = np.uint64(highest)
        self._is_distinct = False  # the ids of the latest submit differ

    def forget_order(self) -> None:
        """Search for the agents of the next submit: the rows of the latest one are not kept."""
        self._is_distinct = False

    def match(
        self, ids: GuestIds, states: States, rows: AgentSlots, away: AgentSlots
    ) -> tuple[Moves, AgentSlots]:
        """
        Return the moves of rows with ids, uint64, [n], and states, uint32, [n], and their slots.

        `rows` are the slots of the rows of the submit before, in their order, `away` others.
        """
        if self._is_distinct and len(ids) == len(rows):
            moves = self._in_place(ids, states, rows)
            if moves is not None:
                return moves, rows
        self._highest = max(self._highest, ids.max())
        return self._searched(ids, states, rows.joined(away))

    def _in_place(self, ids: GuestIds, states: States, rows: AgentSlots) -> Moves | None:
        """Return the moves of rows whose agents are in order or new; None for others."""
        was_absent = ids != rows.ids
        was_absent |= rows.absent
        unusual = states != _RUNNING
        unusual |= was_absent
        events = unusual.nonzero()[0]
        if not len(events):
            return Moves(events, NOWHERE, was_absent, None, None, NOWHERE)
        named, missing = ids[events], NOWHERE
        is_new = named != rows.ids[events]
        new = named[is_new]
        if len(new):
            rises = np.count_nonzero(new[1:] > new[:-1])  # faster than `all`
            if rises < len(new) - 1 or new[0] <= self._highest:
                return None
            self._highest = new[-1]
            if np.count_nonzero(was_absent) > np.count_nonzero(rows.absent):
                missing = events[is_new & ~rows.absent[events]]
        codes = codes_of(states[events], was_absent[events])
        return Moves(events, codes, was_absent, None, None, missing)

    def _searched(
        self, ids: GuestIds, states: States, slots: AgentSlots
    ) -> tuple[Moves, AgentSlots]:
        earlier = earlier_of(ids)
        self._is_distinct = earlier is None
        live = ~slots.absent
        if earlier is None:
            places = places_of(ids, slots.ids, live)
            was_absent = places < 0
        else:
            places = np.full(len(ids), -1)
            first, later = (earlier < 0).nonzero()[0], (earlier >= 0).nonzero()[0]
            places[first] = places_of(ids[first], slots.ids, live)
            was_absent = places < 0
            was_absent[later] = ~IS_LIVE_AFTER[states[earlier[later]]]
        codes = codes_of(states, was_absent)
        events = (~RUNS_ON[codes]).nonzero()[0]
        live[places[places >= 0]] = False
        missing = live.nonzero()[0]
        return Moves(events, codes[events], was_absent, places, earlier, missing), slots


def codes_of(states: States, was_absent: Marks) -> Places:
    """Return the numbers of the transitions of rows with states, uint32, [n]: intp, [n]."""
    return (states + was_absent * _STATES).astype(np.intp)
