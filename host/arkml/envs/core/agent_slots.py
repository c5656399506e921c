"""Agents of one session as arrays, and the rows of a submit matched with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.batches import Floats
from arkml.envs.core.decisions import Decision, Ids, Marks
from arkml.envs.core.id_search import Places, earlier_of, places_of
from arkml.envs.core.transitions import IS_LIVE_AFTER, OUTCOMES, STARTS

GuestIds = npt.NDArray[np.uint64]
States = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class AgentSlots:
    """
    Agents by slot.

    ids: uint64, [n]. numbers: int32, [n]. live: bool, [n], False where the agent is ABSENT; an id
    is LIVE in one slot at most. observations: float32, [n, num_features], the last reported ones.
    waiting: float32, [n], rewards that wait for the next report.
    """

    ids: GuestIds
    numbers: Ids
    live: Marks
    observations: Floats
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
            self.ids[index], self.numbers[index], self.live[index], self.observations[index],
            self.waiting[index],
        )  # fmt: skip

    def with_more(self, more: AgentSlots) -> AgentSlots:
        """Return these slots, followed by others; these themselves if there are no others."""
        if not len(more):
            return self
        return AgentSlots(
            np.concatenate((self.ids, more.ids)),
            np.concatenate((self.numbers, more.numbers)),
            np.concatenate((self.live, more.live)),
            np.concatenate((self.observations, more.observations)),
            np.concatenate((self.waiting, more.waiting)),
        )


class Moves(NamedTuple):
    """
    The rows of one submit as moves of agents by the table.

    was_live: bool, [n], True where the agent is LIVE before the row. places: intp, [n], the slot of
    an agent that is LIVE before the submit, or -1, as in the later rows of an id; None if each such
    agent is in the slot of its row. earlier: intp, [n], the previous row with the same id, or -1;
    None if all ids differ. outcomes: uint8, [n], see OUTCOMES.
    """

    was_live: Marks
    places: Places | None
    earlier: Places | None
    outcomes: npt.NDArray[np.uint8]

    def marked(self, mark: int) -> Marks:
        """Return a mask of the rows whose outcome has a mark, bool, [n]."""
        marks: Marks = (self.outcomes & mark).astype(bool)
        return marks

    def known(self) -> tuple[Places, Places]:
        """Return the rows whose agent is LIVE before the submit, and its slots: intp, [m] each."""
        if self.places is None:
            rows = self.was_live.nonzero()[0]
            return rows, rows
        rows = (self.places >= 0).nonzero()[0]
        return rows, self.places[rows]

    def numbers(self, slots: AgentSlots, fresh: Callable[[int], Ids]) -> Ids:
        """Return the agents' numbers, int32, [n]; those that begin get `fresh` ones."""
        if self.places is None:
            numbers = slots.numbers.copy()
        else:
            numbers = np.full(len(self.places), -1, np.int32)
            rows, places = self.known()
            numbers[rows] = slots.numbers[places]
        begins = self.marked(STARTS)
        begun = begins.nonzero()[0]
        numbers[begun] = fresh(len(begun))
        if self.earlier is None:
            return numbers
        origins = np.where(begins | (self.earlier < 0), np.arange(len(numbers)), self.earlier)
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

    def match(
        self, ids: GuestIds, states: States, rows: AgentSlots, away: AgentSlots
    ) -> tuple[Moves, AgentSlots]:
        """
        Return the moves of rows with ids, uint64, [n], and states, uint32, [n], and their slots.

        `rows` are the slots of the rows of the submit before, in their order, `away` others.
        """
        if self._is_distinct and len(ids) == len(rows):
            same = ids == rows.ids
            new = ids[~same]
            if not len(new) or (new[0] > self._highest and (new[1:] > new[:-1]).all()):
                if len(new):
                    self._highest = new[-1]
                was_live = same & rows.live
                return Moves(was_live, None, None, _outcomes(states, was_live)), rows
        self._highest = max(self._highest, ids.max())
        return self._searched(ids, states, rows.with_more(away))

    def _searched(
        self, ids: GuestIds, states: States, slots: AgentSlots
    ) -> tuple[Moves, AgentSlots]:
        earlier = earlier_of(ids)
        self._is_distinct = earlier is None
        if earlier is None:
            places = places_of(ids, slots.ids, slots.live)
            was_live = places >= 0
        else:
            places = np.full(len(ids), -1)
            first, later = (earlier < 0).nonzero()[0], (earlier >= 0).nonzero()[0]
            places[first] = places_of(ids[first], slots.ids, slots.live)
            was_live = places >= 0
            was_live[later] = IS_LIVE_AFTER[states[earlier[later]]]
        return Moves(was_live, places, earlier, _outcomes(states, was_live)), slots


def _outcomes(states: States, was_live: Marks) -> npt.NDArray[np.uint8]:
    codes = states.astype(np.uint8)
    codes += was_live.view(np.uint8) << 2
    return OUTCOMES.take(codes)
