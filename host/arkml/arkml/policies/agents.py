"""The agents that a policy acts for: their step counts and recurrent states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.base.loggers import SafeLogger
from arkml.batches import Floats
from arkml.errors import ModelRejected, Unavailable
from arkml.policies.noise import Words, mix
from arkml.policies.pages import zeros
from arkml.policies.workspace import PolicyWorkspace

log = SafeLogger(__name__)

ENDED_AGENTS = 65_536
"""Agents kept for each session after their episodes ended."""

AGENTS = 1 << 17
"""Agents kept for each session; those not seen for the longest time are dropped first."""

STATE_BYTES = 128 << 20
"""Bytes of recurrent state kept for each session."""

GUEST_BITS = np.uint64(32)
"""The bits of a session's key above these are the number of its guest."""

_ENTRY_BYTES = 104  # 56 in the table, and 48 in the latest visit if each agent has one row
_SPARE_BYTES = 16 << 20
_LEFT_BYTES = 64 << 10  # that agents may leave in a table beside a quarter of the others'
_REPEATED_ROWS = 4_096  # of agents that a batch names before; a visit with more is not kept

Slots = npt.NDArray[np.int64]

_CONTENT = (
    "_hashes", "_slots", "_free", "_keys", "_ids", "_steps", "_seen", "_ended", "_state", "_live",
    "_held", "_left", "_tick", "_last", "_ends", "_few_until",
)  # fmt: skip


class Visit:
    """
    The agents of one batch, found in an `AgentTable`.

    slots: int64, [agents], the agents' indices in the table, in row order if every agent has one
    row. inverse, turns: int64, [rows], the agent of each row and the number of that agent's earlier
    rows; None if every agent has one row. counts: uint64, [agents] or [], rows of each agent.
    streams: uint64, [rows], see `noise.streams`; None until noise is drawn.
    """

    __slots__ = ("counts", "inverse", "slots", "streams", "turns")

    def __init__(
        self, slots: Slots, inverse: Slots | None, turns: Slots | None, counts: Slots | int
    ) -> None:
        self.slots = slots
        self.inverse = inverse
        self.turns = turns
        self.counts = np.asarray(counts, np.uint64)
        self.streams: Words | None = None

    def last_rows(self) -> npt.NDArray[np.bool_]:
        """Return whether each row is the last one of its agent in the batch: bool, [rows]."""
        if self.inverse is None or self.turns is None:
            return np.ones(len(self.slots), np.bool_)
        return np.asarray(self.turns.astype(np.uint64) + 1 == self.counts[self.inverse])


class SavedAgents(NamedTuple):
    """
    A copy of the agents of one session.

    Attributes:
        ids: uint64, [agents], in the order in which they were seen.
        steps: uint64, [agents], the number of rows of each agent.
        ended: bool, [agents], whether their episodes have ended.
        state: float32, [agents, state_width], the recurrent states.

    """

    ids: Words
    steps: Words
    ended: npt.NDArray[np.bool_]
    state: Floats


class AgentTable:
    """
    A table with an entry for each (session, agent id), holding `state_width` floats of state.

    Agents are found by a 64-bit hash with a secret salt, so that no guest can aim at the entry of
    another guest's agent. Limits hold for each session and each guest, so that agents of one guest
    never displace another guest's.
    """

    def __init__(
        self,
        state_width: int = 0,
        *,
        ended_agents: int = ENDED_AGENTS,
        agents: int = AGENTS,
        state_bytes: int = STATE_BYTES,
        workspace: PolicyWorkspace | None = None,
    ) -> None:
        self.advanced = 0
        """Batches that were counted as acted."""
        self.renewed = 0
        """States that were not finite, and were set to zeros."""
        self._workspace = workspace or PolicyWorkspace()
        self._entry_bytes = 4 * state_width + _ENTRY_BYTES
        self._ended_limit = ended_agents
        self._limit = min(agents, state_bytes // (4 * state_width) if state_width else agents)
        self._salt = np.array([self._workspace.salt], np.uint64)
        self._hashes: Words = np.zeros(0, np.uint64)  # sorted
        self._slots: Slots = np.zeros(0, np.int64)  # the slot of each hash
        self._free: Slots = np.zeros(0, np.int64)
        self._keys: Words = np.zeros(0, np.uint64)
        self._ids: Words = np.zeros(0, np.uint64)
        self._steps: Words = np.zeros(0, np.uint64)
        self._seen: Slots = np.zeros(0, np.int64)
        self._ended: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._state: Floats = np.zeros((0, state_width), np.float32)
        self._live: Counter[int] = Counter()  # entries by session
        self._held: Counter[int] = Counter()  # entries by guest
        self._ends = 0  # episodes that have ended, of all sessions
        self._few_until: dict[int, int] = {}  # `_ends` up to which a session has too few to drop
        self._left = 0  # entries that were used and are free
        self._tick = 0
        self._last: tuple[bytes, bytes, Visit] | None = None

    def __len__(self) -> int:
        return len(self._hashes)

    def widen(self, state_width: int) -> None:
        """
        Hold `state_width` floats of state for each agent, zeros for existing agents.

        Nothing changes if the table has this width already. Raises ModelRejected if it holds states
        of another width, since these belong to another model.
        """
        width = self._state.shape[1]
        if width == state_width:
            return
        if width:
            raise ModelRejected(
                f"the model has {state_width} numbers of recurrent state, and agents have {width}"
            )
        self._entry_bytes += 4 * state_width
        self._limit = min(self._limit, STATE_BYTES // (4 * state_width))
        self._state = zeros((len(self._keys), state_width))

    def count_vanished(self) -> int:
        """
        Return the number of agents without a last row that are missing since long.

        The time is measured in changes of who is there, and half of all changes are long.
        """
        missing = ~self._ended & (2 * self._seen < self._tick)
        if self._last is not None:
            missing[self._last[2].slots] = False
        return int(missing[self._slots].sum())

    def held(self, guest: int) -> int:
        """Return the number of bytes kept for the agents of a guest, given by its number."""
        return self._held[guest] * self._entry_bytes

    def visit(self, keys: Words, ids: Words) -> Visit:
        """
        Find the agents of a batch; new ones begin with step 0 and a state of zeros.

        ids: uint64, [rows]. keys: uint64, [] or [rows], of the agents' sessions. Raises Unavailable
        if one session or one guest has more agents than may be kept.
        """
        seen = (ids.tobytes(), keys.tobytes())
        last = self._last
        # Most frames have the agents of the frame before, in the same order.
        if last is not None and last[0] == seen[0] and last[1] == seen[1]:
            return last[2]
        visit = self._find(self._hashes_of(keys, ids), ids, np.broadcast_to(keys, ids.shape))
        if len(ids) - len(visit.slots) <= _REPEATED_ROWS:
            self._last = (*seen, visit)
        else:
            self._seen[visit.slots] = self._tick
            self._last = None
        return visit

    def steps(self, visit: Visit) -> Words:
        """Return the number of rows that each row's agent had before it: uint64, [rows]."""
        steps = self._steps[visit.slots]
        if visit.inverse is None or visit.turns is None:
            return steps
        return steps[visit.inverse] + visit.turns.astype(np.uint64)

    def ended(self, visit: Visit, ends: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_]:
        """
        Return whether the episode of each row's agent ended before that row, bool, [rows].

        The end may be in an earlier batch, or in an earlier row of this one: `ends`, bool, [rows],
        marks the rows that end an episode, None if there are none.
        """
        ended = self._ended[visit.slots]
        if visit.inverse is None or visit.turns is None:
            return ended
        if ends is None:
            return ended[visit.inverse]
        first = np.full(len(visit.slots), len(ends))
        np.minimum.at(first, visit.inverse[ends], visit.turns[ends])
        return ended[visit.inverse] | (visit.turns > first[visit.inverse])

    def end(self, visit: Visit, ended: npt.NDArray[np.bool_]) -> None:
        """Mark the agents of the rows where `ended`, bool, [rows], is True as not coming back."""
        slots = visit.slots if visit.inverse is None else visit.slots[visit.inverse]
        self._ended[slots[ended]] = True
        self._ends += int(np.count_nonzero(ended))

    def state(self, visit: Visit) -> Floats:
        """Return a copy of the recurrent states: float32, [agents, state_width]."""
        return self._state[visit.slots]

    def advance(
        self, visit: Visit, ended: npt.NDArray[np.bool_] | None, state: Floats | None
    ) -> None:
        """
        Count the rows of a batch as steps of their agents, and store recurrent states.

        ended: bool, [rows], True where the row ends an episode; None if there are no episodes.
        state: float32, [agents, state_width], the recurrent states after the batch, or None.
        """
        self.advanced += 1
        slots = visit.slots
        self._steps[slots] += visit.counts
        if ended is not None:
            if visit.inverse is not None:
                rows, ended = ended, np.zeros(len(slots), np.bool_)
                ended[visit.inverse] = rows  # the last row of an agent decides
            self._ended[slots] = ended
            self._ends += int(np.count_nonzero(ended))
        if state is not None:
            self._state[slots] = state
            with np.errstate(over="ignore", invalid="ignore"):
                is_finite = np.isfinite(state.sum())
            if not is_finite:
                self._renew(slots)

    def _renew(self, slots: Slots) -> None:
        """Set states that are not finite to zeros: they would spoil all actions to come."""
        broken = slots[~np.isfinite(self._state[slots]).all(axis=1)]
        self._state[broken] = 0
        if len(broken) and not self.renewed:
            log.warning(
                "recurrent states of %d of %d agents are not finite: zeros take their places",
                len(broken),
                len(slots),
            )
        self.renewed += len(broken)

    def forget(self, key: int) -> None:
        """Drop the agents of session `key`."""
        self._few_until.pop(key, None)
        self._drop(self._keys[self._slots] == np.uint64(key))

    def save(self, key: int) -> SavedAgents:
        """Return a copy of the agents of session `key`."""
        self._touch()
        slots = self._slots[self._keys[self._slots] == np.uint64(key)]
        slots = slots[np.lexsort((self._ids[slots], self._seen[slots]))]
        columns = (self._ids, self._steps, self._ended, self._state)
        return SavedAgents(*(column[slots] for column in columns))

    @property
    def width(self) -> int:
        """The number of floats in each agent's recurrent state."""
        width: int = self._state.shape[1]
        return width

    def load(self, key: int, saved: SavedAgents) -> None:
        """
        Replace the agents of session `key` by saved ones, whose states have the same width.

        Raises Unavailable as `visit` does.
        """
        self.forget(key)
        self._last = None
        count = len(saved.ids)
        if not count:
            return
        keys = np.full(count, key, np.uint64)
        hashes = self._hashes_of(keys, saved.ids)
        order = np.argsort(hashes)
        self._insert(hashes[order], saved.ids[order], keys, np.ones(count, np.bool_))
        slots = self._slots[np.searchsorted(self._hashes, hashes)]
        self._steps[slots], self._ended[slots] = saved.steps, saved.ended
        self._few_until.pop(key, None)
        self._state[slots] = saved.state
        self._seen[slots] = np.arange(self._tick + 1, self._tick + 1 + count)
        self._tick += count

    def take_from(self, other: AgentTable, keys: Collection[int], *, has_states: bool) -> None:
        """
        Move the agents of sessions `keys` here, from another table of the same workspace.

        Agents keep their step counts. With `has_states`, for tables of the same width, they also
        keep their recurrent states, which else become zeros. A session with more agents than this
        table may keep begins with none.
        """
        counts = {key: other._live[key] for key in keys if other._live[key]}
        fitting = [key for key, count in counts.items() if count <= self._limit]
        if not fitting:
            return
        self._workspace.add_table(self)
        if has_states and not len(self) and len(fitting) == len(other._live):
            for name in _CONTENT:  # all of it: no array is copied
                mine, theirs = getattr(self, name), getattr(other, name)
                setattr(self, name, theirs)
                setattr(other, name, mine)
            return
        moved = np.isin(other._keys[other._slots], np.array(fitting, np.uint64))
        hashes, theirs = other._hashes[moved], other._slots[moved]
        ids = other._ids[theirs]
        slots = self._add(
            hashes, ids, other._keys[theirs], Counter({k: counts[k] for k in fitting})
        )
        self._steps[slots] = other._steps[theirs]
        self._seen[slots] = self._tick
        self._ended[slots] = other._ended[theirs]
        self._few_until.clear()
        for key in fitting:
            other._few_until.pop(key, None)
        self._state[slots] = other._state[theirs] if has_states else 0
        self._last = None
        other._drop(moved)

    def _hashes_of(self, keys: Words, ids: Words) -> Words:
        return mix((ids ^ mix(keys ^ self._salt)) + self._salt)

    def _find(self, hashes: Words, ids: Words, keys: Words) -> Visit:
        agents, first, inverse, counts = np.unique(
            hashes, return_index=True, return_inverse=True, return_counts=True
        )
        self._touch()
        at = np.searchsorted(self._hashes, agents)
        known = at < len(self._hashes)
        known[known] = self._hashes[at[known]] == agents[known]
        new = ~known
        if new.any():
            self._insert(agents, ids[first], keys[first], new)
            at = np.searchsorted(self._hashes, agents)
        slots = self._slots[at]
        if len(agents) == len(hashes):
            return Visit(slots[inverse], None, None, 1)
        return Visit(slots, inverse, _turns(inverse, counts), counts)

    def _touch(self) -> None:
        """Record when the agents of the last visit were seen, which matters only from now on."""
        self._tick += 1
        if self._last is not None:
            self._seen[self._last[2].slots] = self._tick

    def _insert(self, agents: Words, ids: Words, keys: Words, new: npt.NDArray[np.bool_]) -> None:
        """Add entries for the agents of a batch that are marked in `new`, bool, [agents]."""
        coming = _counted(keys[new])
        self._make_room(agents, keys, coming)
        slots = self._add(agents[new], ids[new], keys[new], coming)
        self._steps[slots] = 0
        self._seen[slots] = self._tick
        self._ended[slots] = False
        self._state[slots] = 0

    def _add(self, hashes: Words, ids: Words, keys: Words, coming: Counter[int]) -> Slots:
        """Return slots for new agents, whose contents are those of earlier agents."""
        if len(self._free) < len(hashes):
            self._grow(len(self._hashes) + len(hashes))
        slots, self._free = self._free[: len(hashes)], self._free[len(hashes) :]
        self._left = max(0, self._left - len(hashes))
        self._keys[slots] = keys
        self._ids[slots] = ids
        at = np.searchsorted(self._hashes, hashes)
        self._hashes = np.insert(self._hashes, at, hashes)
        self._slots = np.insert(self._slots, at, slots)
        self._live.update(coming)
        self._held.update(_by_guest(coming))
        return slots

    def _make_room(self, agents: Words, keys: Words, coming: Counter[int]) -> None:
        """
        Drop agents of the sessions that would have too many.

        agents, keys: uint64, [agents], hashes and sessions of all agents in the batch. coming: new
        agents by session. Raises Unavailable, and then no agent is dropped.
        """
        drop = np.zeros(len(self._hashes), np.bool_)
        quiet = min(self._ended_limit, self._limit)
        for key, count in coming.items():
            if self._live[key] + count > quiet:
                present = int(np.count_nonzero(keys == np.uint64(key)))
                if present > self._limit:
                    raise Unavailable(
                        f"a batch has {present} agents of session {key:#x}; states are kept for"
                        f" {self._limit} agents of a session"
                    )
                self._mark_surplus(drop, key, count, agents)
        leaving = _by_guest(_counted(self._keys[self._slots[drop]]) if drop.any() else Counter())
        for guest, count in _by_guest(coming).items():
            more = (count - leaving[guest]) * self._entry_bytes
            self._workspace.require_agents(self, guest, more)
        self._drop(drop)

    def _mark_surplus(
        self, drop: npt.NDArray[np.bool_], key: int, coming: int, agents: Words
    ) -> None:
        """Mark agents of one session to drop: ended ones, then any, longest unseen first."""
        over = self._live[key] + coming - self._limit
        if over <= 0 and self._ends <= self._few_until.get(key, -1):
            return  # to look at all agents would take as long as their actions
        own = np.flatnonzero(self._keys[self._slots] == np.uint64(key))
        ended = self._ended[self._slots[own]]
        # With a slack of an eighth not every batch pays for a few agents over the limit.
        quiet = int(ended.sum()) - self._ended_limit
        self._few_until[key] = self._ends + self._ended_limit // 8 - quiet
        if quiet <= self._ended_limit // 8 and over <= 0:
            return
        idle = ~np.isin(self._hashes[own], agents)
        if quiet > self._ended_limit // 8:
            self._mark_oldest(drop, own[idle & ended], quiet)
        over -= int(drop[own].sum())
        if over > 0:
            self._mark_oldest(drop, own[idle & ~drop[own]], over + self._limit // 8)

    def _mark_oldest(self, drop: npt.NDArray[np.bool_], among: Slots, count: int) -> None:
        order = np.argsort(self._seen[self._slots[among]], kind="stable")
        drop[among[order[:count]]] = True

    def _drop(self, drop: npt.NDArray[np.bool_]) -> None:
        if drop.any():
            slots = self._slots[drop]
            dropped = _counted(self._keys[slots])
            self._live -= dropped
            self._held -= _by_guest(dropped)
            self._free = np.concatenate([slots, self._free])
            self._left += len(slots)
            self._hashes = self._hashes[~drop]
            self._slots = self._slots[~drop]
            self._last = None
            if self._left > len(self._hashes) // 4 + _LEFT_BYTES // self._entry_bytes:
                self._shrink()

    def _shrink(self) -> None:
        """Free the memory of entries that are not in use."""
        slots, size = self._slots, len(self._slots)
        self._keys = self._keys[slots]
        self._ids = self._ids[slots]
        self._steps = self._steps[slots]
        self._seen = self._seen[slots]
        self._ended = self._ended[slots]
        kept = zeros((size, *self._state.shape[1:]))
        self._state = np.take(self._state, slots, axis=0, out=kept, mode="clip")  # without a buffer
        self._slots = np.arange(size)
        self._free = np.zeros(0, np.int64)
        self._left = 0

    def _grow(self, agents: int) -> None:
        old = len(self._keys)
        size = max(agents, min(max(16, 2 * old), old + _SPARE_BYTES // self._entry_bytes))
        self._keys = _resized(self._keys, size)
        self._ids = _resized(self._ids, size)
        self._steps = _resized(self._steps, size)
        self._seen = _resized(self._seen, size)
        self._ended = _resized(self._ended, size)
        self._state = _resized(self._state, size)
        self._free = np.concatenate([self._free, np.arange(old, size)])


def agents_of(policy: object) -> AgentTable | None:
    """Return the table of agents of a policy that the host made, or None."""
    agents = getattr(policy, "agents", None)
    return agents if isinstance(agents, AgentTable) else None


def _turns(inverse: Slots, counts: Slots) -> Slots:
    """Return the number of equal values before each value of `inverse`."""
    order = np.argsort(inverse, kind="stable")
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    turns = np.empty(len(inverse), np.int64)
    turns[order] = np.arange(len(inverse)) - starts
    return turns


def _counted(keys: Words) -> Counter[int]:
    """Count each key."""
    distinct, counts = np.unique(keys, return_counts=True)
    return Counter(dict(zip(distinct.tolist(), counts.tolist(), strict=True)))


def _by_guest(counts: Counter[int]) -> Counter[int]:
    """Add counts by session up to counts by guest."""
    totals: Counter[int] = Counter()
    for key, count in counts.items():
        totals[key >> int(GUEST_BITS)] += count
    return totals


def _resized(values: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    grown = zeros((size, *values.shape[1:]), values.dtype)
    grown[: len(values)] = values
    return grown
