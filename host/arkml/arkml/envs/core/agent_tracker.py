"""
The agents of one session, tracked from submit to submit by the transitions of a table.

Invariants of `AgentTracker`:

- An agent's number belongs to one episode. It is new in the report that starts the episode, and
  forgotten with the report that ends it; no report of that number precedes the first or follows the
  second.
- Each row of a submit is reported once, in push order, except where actions are repeated.
- A row's reward is reported with the row, or, where its actions were repeated, added to the next
  report of a row with its id. Rewards that wait when the guest ends are not reported.
- There is a slot for each row of the latest submit, in its order, and one for each LIVE agent that
  had no row in it. An id is LIVE in one slot at most.
- While the tracker is steady, every row of the latest submit was reported once, takes an action and
  has an id of its own.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.arrays import Marks, every
from arkml.batches import NO_METADATA, Batch, Floats, MetadataLog
from arkml.envs.core.agent_slots import NOWHERE, AgentSlots, GuestIds, Moves, highest_of, match
from arkml.envs.core.decisions import (
    Behavior,
    Decision,
    Ids,
    InPlace,
    Replaced,
    choice_masks,
)
from arkml.envs.core.id_search import Indices
from arkml.envs.core.transitions import ENDS_PREVIOUS, REPORTED
from arkml.errors import Unavailable, UsageError
from arkml.hive.protocol.masks import PREFIX
from arkml.policies.agents import AGENTS
from arkml.runtime.columns.region import Listed
from arkml.runtime.kept_bytes import KeptBytes

MOST_AWAY = AGENTS
"""Live agents of a session without a row in its latest submit: as many as a policy keeps."""

_TRACKER_BYTES = 4_096  # of a session whose agents are tracked, beside them, by estimate
_SLOT_BYTES = 8 + 4 + 1 + 4  # the columns of AgentSlots, without observations
_REPORT_BYTES = 4 + 4 + 3 + 8  # the columns of Decision, likewise
_RUNNING, _INITIAL = np.uint32(EpisodeState.RUNNING), np.uint32(EpisodeState.INITIAL)
_MOST_AGENTS = (1 << 31) - 1  # numbers are int32


class SavedTracker(NamedTuple):
    """
    An immutable copy of the live agents of one session.

    Attributes:
        behavior: The behavior of the agents.
        rows: The slots of the rows of the latest submit.
        away: The slots of live agents without a row in the latest submit.
        over: The rows that take no action, intp, [n].
        highest: The highest id, None if an id came twice in the latest submit.
        is_steady: Whether all rows take an action and all ids differ.
        repeats: How often the actions of the latest decision were repeated.
        actions: The repeated actions, float32, [rows, num_actions].
        has_closed: Whether the latest decision reported more than its rows.
        held: Bytes that are charged for the agents.

    """

    behavior: Behavior
    rows: AgentSlots
    away: AgentSlots
    over: Indices
    highest: int | None
    is_steady: bool
    repeats: int
    actions: Floats
    has_closed: bool
    held: int


class AgentNumbers:
    """The source of agents' numbers in an environment: from `first` on, each used once."""

    def __init__(self, first: int = 0) -> None:
        self._next = first
        self._trackers: weakref.WeakSet[AgentTracker] = weakref.WeakSet()

    @property
    def upcoming(self) -> int:
        """The next number to be given to an agent."""
        return self._next

    def begin(self, first: int) -> None:
        """Continue with number `first`, in an environment whose instance is a copy."""
        self._next = first

    def track(self, behavior: Behavior, kept: KeptBytes) -> AgentTracker:
        """Return a tracker for the agents of a session; `kept` is charged for their bytes."""
        tracker = AgentTracker(self, behavior, kept)
        self._trackers.add(tracker)
        return tracker

    def take(self, count: int) -> Ids:
        """Return the next `count` numbers, int32, [count]. Raises UsageError when all are used."""
        end = self._next + count
        if end - 1 > _MOST_AGENTS:
            raise UsageError(f"the environment has numbered {end} agents: make a new one")
        numbers = np.arange(self._next, end, dtype=np.int32)
        self._next = end
        return numbers

    def guest_id(self, number: int) -> int:
        """Return the id that the guest gives a live agent. Raises KeyError for other numbers."""
        for tracker in self._trackers:
            if (guest_id := tracker.guest_id(number)) is not None:
                return guest_id
        raise KeyError(number)


class AgentTracker:
    """Follows the live agents of one session from submit to submit."""

    def __init__(self, numbers: AgentNumbers, behavior: Behavior, kept: KeptBytes) -> None:
        self.behavior: Behavior = behavior
        self.is_repeating: bool = behavior.spec.decision_period > 1
        """True if agents decide in some submits only, and repeat their actions in the others."""
        self.highest: int | None = None
        """The highest id up to now, None if one came twice in the latest submit."""
        self._numbers = numbers
        self._kept = kept
        self.held = 0
        """Bytes that count for the agents."""
        spec, observation = behavior.spec, 4 * behavior.num_features
        self._slot_bytes = _SLOT_BYTES + observation
        self._report_bytes = _REPORT_BYTES + observation + sum(spec.actions.branches)
        self._row_bytes = self._slot_bytes + self._report_bytes
        if self.is_repeating:
            self._row_bytes += 4 * behavior.num_actions
        self._has_choices = bool(spec.actions.branches)
        self._has_closed = False  # the latest decision reported more than its rows
        self._next: tuple[Indices, Ids] | None = None  # rows and agents that act, if kept
        self._actions: Floats = np.zeros((0, behavior.num_actions), np.float32)
        self._observations: Floats = np.zeros((0, behavior.num_features), np.float32)
        self.forget_all()

    @property
    def acting_rows(self) -> Any:
        """Rows of the latest submit that take an action: a slice, or intp, [m]."""
        if self._next is not None:
            return self._next[0]
        if not len(self._over):
            return slice(None)
        over = np.zeros(len(self._rows), bool)
        over[self._over] = True
        return (~over).nonzero()[0]

    @property
    def acting_count(self) -> int:
        """The number of rows of the latest submit that take an action."""
        return len(self._rows) - len(self._over)

    @property
    def running_agents(self) -> Ids | None:
        """The array `agents` of the next decision, if all agents continue, or None."""
        return self._rows.numbers if self._is_steady else None

    def guest_id(self, number: int) -> int | None:
        """Return the guest's id of a live agent, None for other numbers."""
        for slots in (self._settled(), self._away):
            found = ((slots.numbers == number) & ~slots.absent).nonzero()[0]
            if len(found):
                return int(slots.ids[found[0]])
        return None

    def observe(
        self, batch: Batch, metadata: MetadataLog, listed: Listed | None = None
    ) -> Decision | InPlace | Replaced:
        """
        Return the decision for a submit with at least one row, or its rows where they say it all.

        `listed` has the rows if they continue the rows of the previous submit, by the rules
        LISTING, and new agents have higher ids than `highest`. Raises GuestMemoryFull, and
        Unavailable for more than MOST_AWAY live agents without a row, in which case the agents are
        unchanged.
        """
        masks, rest = metadata.split(PREFIX) if len(metadata.rows) else (metadata, metadata)
        if listed is not None and self.highest is not None:
            return self._follow(listed, batch, rest, masks)
        if (replaced := self._replace(batch, rest, masks)) is not None:
            return replaced
        ids, slots = batch.rows["id"].copy(), self._settled().joined(self._away)
        moves = match(ids, batch.rows["state"], slots)
        return self._advance(moves, slots, ids, batch, rest, masks)

    def keep_actions(self, actions: Floats) -> None:
        """
        Keep the actions of a decision, float32, [rows, num_actions], if they are to be repeated.
        """
        if self._is_steady and self.is_repeating:
            self._actions = actions.copy()

    def repeat_actions(self, batch: Batch) -> bool:
        """
        Answer a submit with the previous actions, unless an agent is due a decision.

        All agents are due after `decision_period` submits, and when an agent begins, ends, is
        missing or has two rows. The rewards of the submit are added to the next decision. Returns
        whether the submit was answered.
        """
        if not self._is_steady or self._repeats >= self.behavior.spec.decision_period - 1:
            return False
        if not self._is_continued_by(batch.rows):
            return False
        self._repeats += 1
        self._rows.waiting[:] += batch.rows["reward"]
        batch.actions[...] = self._actions
        return True

    def truncate_all(self) -> Decision:
        """Return a decision that truncates every live agent with its last observation."""
        slots = self._settled().joined(self._away)
        found = (~slots.absent).nonzero()[0]
        agents = slots.chosen(found[np.argsort(slots.numbers[found])])
        self.forget_all()
        count = len(found)
        started, terminated, truncated = np.zeros((3, count), bool)
        truncated[:] = True
        agents.numbers.setflags(write=False)
        rows = np.full(count, -1)
        return Decision(
            self.behavior, agents.numbers, agents.observations, np.zeros(count, np.float32),
            started, terminated, truncated, rows, masks=self._choice_masks(NO_METADATA, rows),
        )  # fmt: skip

    def forget_all(self) -> None:
        """Forget the live agents without reporting an end."""
        self._clear()
        self._hold(0)

    def _clear(self) -> None:
        none = AgentSlots.none(self.behavior.num_features)
        self._rows = none  # of the latest submit, in its order
        self._is_behind = False  # its `absent` is not that of the latest submit
        self._away = none  # LIVE, without a row in it
        self.highest = None
        self._order: Indices = np.arange(0)
        self._over = NOWHERE  # rows of the latest submit that take no action
        self._is_steady = False
        self._repeats = 0
        self._next = None

    def replace(self, guest_id: int | None) -> None:
        """
        Take over the guest's one agent, or none, from a fleet that has tracked it.

        The agent is live, with a new number; the fleet has its last observation.
        """
        self._clear()
        if guest_id is not None:
            numbers = self._numbers.take(1)
            observations = np.zeros((1, self.behavior.num_features), np.float32)
            self._rows = AgentSlots(
                np.array([guest_id], np.uint64), numbers, np.zeros(1, bool), observations,
                np.zeros(1, np.float32),
            )  # fmt: skip
        self._make_room(len(self._rows), 0, 0)

    def save(self) -> SavedTracker:
        """Return a copy of the agents between two submits."""
        return SavedTracker(
            self.behavior, self._settled().copied(), self._away, self._over, self.highest,
            self._is_steady, self._repeats, self._actions, self._has_closed, self.held,
        )  # fmt: skip

    def load(self, saved: SavedTracker) -> None:
        """Restore saved agents in an empty tracker. Raises GuestMemoryFull."""
        self._hold(saved.held)
        self._rows, self._is_behind, self._away = saved.rows.copied(), False, saved.away
        self._set_order(len(saved.rows))
        self._over, self.highest, self._is_steady = saved.over, saved.highest, saved.is_steady
        self._repeats, self._actions = saved.repeats, saved.actions
        self._has_closed = saved.has_closed

    @property
    def live_count(self) -> int:
        """The number of live agents."""
        slots = self._settled(), self._away
        return sum(len(some) - int(np.count_nonzero(some.absent)) for some in slots)

    def _is_continued_by(self, rows: npt.NDArray[Any]) -> bool:
        """Return whether rows, ROW, [n], are of the same agents in their order, all Running."""
        return (
            len(rows) == len(self._rows)
            and bool((rows["state"] == _RUNNING).all())
            and bool((rows["id"] == self._rows.ids).all())
        )

    def _settled(self) -> AgentSlots:
        """Return the slots of the rows, with the marks of agents that ended in the last list."""
        if self._is_behind:
            self._rows.absent.fill(False)
            self._rows.absent[self._over] = True
            self._is_behind = False
        return self._rows

    def _follow(
        self, listed: Listed, batch: Batch, rest: MetadataLog, masks: MetadataLog
    ) -> InPlace:
        """Return rows that continue the rows of the previous submit one by one."""
        slots, rewards = self._rows, listed.rewards
        before = numbers = slots.numbers
        begun = over = NOWHERE
        if len(listed.begun) or len(listed.over):  # one array says that all agents run on
            begun, over = listed.begun.astype(np.intp), listed.over.astype(np.intp)
            numbers = numbers.copy()
            numbers[begun] = self._numbers.take(len(begun))
            numbers.setflags(write=False)
        if self._repeats:
            rewards = rewards + slots.waiting
            slots.waiting.fill(0)
            self._repeats = 0
        if self._has_closed:
            self._make_room(len(batch), len(self._away), 0)
        if len(begun):
            slots.ids[begun] = batch.rows["id"][begun]
        slots.numbers = numbers
        slots.observations[...] = batch.features
        self._is_behind = True
        self._over, self._is_steady, self._next = over, not len(over), None
        self.highest = listed.highest
        return InPlace(
            self.behavior, before, numbers, begun, over, listed.is_rewarded, batch.features,
            rewards, listed.started, listed.terminated, listed.truncated, self._order, rest,
            self._choice_masks(masks, self._order) if self._has_choices else (),
        )  # fmt: skip

    def _replace(self, batch: Batch, rest: MetadataLog, masks: MetadataLog) -> Replaced | None:
        """Return rows of agents that each continue, or end where another begins; else None."""
        slots, acted, count = self._rows, self.acting_rows, len(batch)
        if self.highest is None or self.is_repeating or len(self._away) or not len(slots):
            return None
        ids, states = batch.rows["id"].copy(), batch.rows["state"].copy()
        begins = states == _INITIAL
        continuing, begun = (~begins).nonzero()[0], begins.nonzero()[0]
        known = slots.ids[acted]
        if len(continuing) != len(known) or not every(ids[continuing] == known):
            return None
        places = states[continuing].nonzero()[0]
        over = continuing[places]
        acts = np.ones(count, bool)
        acts[over] = False
        acting = acts.nonzero()[0]
        if len(places) != len(begun) or not every(acting[places] == begun):
            return None
        highest = self.highest
        if len(begun):
            fresh = ids[begun]
            if fresh[0] <= highest or not every(fresh[1:] > fresh[:-1]):
                return None
            highest = int(fresh[-1])
        self._make_room(count, 0, 0)
        self._set_order(count)
        masked = self._choice_masks(masks, self._order) if self._has_choices else ()
        if self._next is not None:
            before = self._next[1]
        else:
            before = slots.numbers[acted] if len(self._over) else slots.numbers
        numbers = agents = np.empty(count, np.int32)
        numbers[continuing] = before
        numbers[begun] = self._numbers.take(len(begun))
        if len(begun):
            agents = numbers[acting]
        numbers.setflags(write=False)
        agents.setflags(write=False)
        self._over, self._is_steady, self.highest = over, not len(over), highest
        self._keep(ids, numbers, ~acts, batch.features)
        self._next = acting, agents
        return Replaced(
            self.behavior, before, agents, numbers, continuing, acting, places, batch.features,
            batch.rows["reward"], states, self._order, rest, masked,
        )  # fmt: skip

    def _advance(
        self,
        moves: Moves,
        slots: AgentSlots,
        ids: GuestIds,
        batch: Batch,
        rest: MetadataLog,
        masks: MetadataLog,
    ) -> Decision:
        """Move the agent of each row by the table, and return the reports."""
        count, events = len(batch), moves.events
        closed = events[ENDS_PREVIOUS[moves.codes]]
        self._make_room(count, len(moves.missing), len(closed))
        features = batch.features.copy()
        rewards = batch.rows["reward"].copy()
        started, terminated, truncated = np.zeros((3, count), bool)
        begins, terminates, truncates, is_over = REPORTED.take(moves.codes, 1)
        started[events], terminated[events], truncated[events] = begins, terminates, truncates
        begun, over = events[begins], events[is_over]
        numbers = moves.numbers(slots, begun, self._numbers.take(len(begun)))
        numbers.setflags(write=False)
        if self.is_repeating:
            known, positions = moves.known()
            rewards[known] += slots.waiting[positions]
        self._set_order(count)
        decision = Decision(
            self.behavior, numbers, features, rewards, started, terminated, truncated, self._order,
            rest, self._choice_masks(masks, self._order),
        )  # fmt: skip
        is_distinct = moves.earlier is None
        self._over, self._is_steady = over, is_distinct and not len(closed) and not len(over)
        self.highest = highest_of(ids, slots.ids) if is_distinct else None
        if len(closed):
            decision = self._with_ends(decision, closed, moves, slots, masks)
        self._settle(moves, slots, ids, numbers, features)
        return decision

    def _with_ends(
        self,
        decision: Decision,
        closed: Indices,
        moves: Moves,
        slots: AgentSlots,
        masks: MetadataLog,
    ) -> Decision:
        """Return a decision with a report of the previous episode before each row of `closed`."""
        numbers, observations = moves.previous(closed, slots, decision)

        def among(column: Any, ends: Any) -> Any:
            return np.insert(column, closed, ends, axis=0)

        agents, rows = among(decision.agents, numbers), among(decision.submit_rows, -1)
        agents.setflags(write=False)
        return Decision(
            self.behavior,
            agents,
            among(decision.observations, observations),
            among(decision.rewards, 0),
            among(decision.started, False),
            among(decision.terminated, False),
            among(decision.truncated, True),
            rows,
            decision.metadata,
            self._choice_masks(masks, rows),
        )

    def _settle(
        self, moves: Moves, slots: AgentSlots, ids: GuestIds, numbers: Ids, features: Floats
    ) -> None:
        """Keep the agents of a submit for the next one, and the agents without a row in it."""
        absent = np.zeros(len(ids), bool)
        absent[self._over] = True
        if moves.earlier is not None:  # the last row of an id has its agent
            absent[moves.earlier[moves.earlier >= 0]] = True
        self._away = slots.chosen(moves.missing)
        self._keep(ids, numbers, absent, features)
        self._next = None

    def _keep(self, ids: GuestIds, numbers: Ids, absent: Marks, features: Floats) -> None:
        """Keep the rows of a submit for the next one."""
        if not len(ids) <= len(self._observations) <= 1.25 * len(ids):
            self._observations = np.empty_like(features)  # new memory costs more than the copy
        observations = self._observations[: len(ids)]
        observations[...] = features
        waiting = np.zeros(len(ids), np.float32)
        self._rows = AgentSlots(ids, numbers, absent, observations, waiting)
        self._is_behind = False
        self._repeats = 0

    def _set_order(self, count: int) -> None:
        """Set `_order` to the indices of `count` rows."""
        if len(self._order) != count:
            self._order = np.arange(count)
            self._order.setflags(write=False)

    def _make_room(self, rows: int, away: int, closed: int) -> None:
        """
        Count the agents of `rows` rows and of `away` others, and reports before `closed` rows.

        Raises as `observe`.
        """
        if away > MOST_AWAY:
            raise Unavailable(
                f"{self.behavior.name} would have {away} live agents without a row in this submit,"
                f" {MOST_AWAY} are allowed: end their episodes"
            )
        size = _TRACKER_BYTES + rows * self._row_bytes + away * self._slot_bytes
        if closed:
            size += (rows + closed) * self._report_bytes
        self._hold(size)
        self._has_closed = closed > 0

    def _hold(self, size: int) -> None:
        if size != self.held:
            self._kept.change(size - self.held)
            self.held = size

    def _choice_masks(self, masks: MetadataLog, rows: Indices) -> tuple[Marks, ...]:
        """Return the choices that agents cannot take, for each branch bool, [n, choices]."""
        return choice_masks(masks, rows, self.behavior.spec.actions.branches)
