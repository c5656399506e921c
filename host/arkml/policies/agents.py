"""What a policy remembers of each agent: how often it acted and its recurrent state."""

from __future__ import annotations

import secrets
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.batches import Floats
from arkml.errors import Unavailable
from arkml.policies.noise import Words, mix
from arkml.policies.workspace import PolicyWorkspace

ENDED_AGENTS = 65_536
"""So many agents whose episode ended are remembered for each session."""

AGENTS = 1 << 17
"""So many agents are remembered for each session; those not seen for longest are forgotten."""

STATE_BYTES = 128 << 20
"""So much recurrent state is kept for each session."""

_ENTRY_BYTES = 48
_SPARE_BYTES = 16 << 20
_GUEST = 32  # the bits of a session's key above these are the number of its guest

Slots = npt.NDArray[np.int64]


class Visit:
    """
    The agents of one batch.

    slots: [agents], in row order where no agent comes twice. inverse, turns: [rows], or None
    where no agent comes twice: the agent of each row, and how many rows of that agent came before
    it. counts: rows of each agent. `streams` is for whoever draws noise for the rows.
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


class AgentTable:
    """
    One entry for each (session, agent id) seen; `state_width` floats of state each.

    Agents are found by a 64-bit hash with a secret salt: no guest can aim at the entry of
    another guest's agent. Every session has a share of its own, and so has every guest: what one
    of them does, makes nobody else's agents be forgotten.
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
        self._workspace = workspace or PolicyWorkspace()
        self._entry_bytes = 4 * state_width + _ENTRY_BYTES
        self._ended_limit = ended_agents
        self._limit = min(agents, state_bytes // (4 * state_width) if state_width else agents)
        self._salt = np.array([secrets.randbits(64)], np.uint64)
        self._hashes: Words = np.zeros(0, np.uint64)  # sorted
        self._slots: Slots = np.zeros(0, np.int64)  # the slot of each hash
        self._free: Slots = np.zeros(0, np.int64)
        self._keys: Words = np.zeros(0, np.uint64)
        self._steps: Words = np.zeros(0, np.uint64)
        self._seen: Slots = np.zeros(0, np.int64)
        self._ended: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._state: Floats = np.zeros((0, state_width), np.float32)
        self._live: Counter[int] = Counter()  # entries by session
        self._held: Counter[int] = Counter()  # entries by guest
        self._tick = 0
        self._last: tuple[bytes, bytes, Visit] | None = None

    def __len__(self) -> int:
        return len(self._hashes)

    def held(self, guest: int) -> int:
        """How many bytes are kept of the agents of one guest."""
        return self._held[guest] * self._entry_bytes

    def visit(self, keys: Words, ids: Words) -> Visit:
        """
        Find the agents of a batch, new ones with step 0 and a state of zeros.

        ids: uint64, [rows]. keys: uint64, [] or [rows]. Raises Unavailable if there are more
        agents of one session, or of one guest, than may be kept.
        """
        seen = (ids.tobytes(), keys.tobytes())
        last = self._last
        # The same agents in the same order as in the frame before is the common case.
        if last is not None and last[0] == seen[0] and last[1] == seen[1]:
            return last[2]
        hashes = mix((ids ^ mix(keys ^ self._salt)) + self._salt)
        visit = self._find(hashes, np.broadcast_to(keys, ids.shape))
        self._last = (*seen, visit)
        return visit

    def steps(self, visit: Visit) -> Words:
        """How often the agent of each row has acted before, uint64, [rows]."""
        steps = self._steps[visit.slots]
        if visit.inverse is None or visit.turns is None:
            return steps
        return steps[visit.inverse] + visit.turns.astype(np.uint64)

    def ended(self, visit: Visit, ends: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_]:
        """
        Return whether the episode of each row's agent ended before that row, bool, [rows].

        It may have ended in a batch before, or in an earlier row of this one: `ends`, bool,
        [rows], marks the rows that end an episode, None if there are none.
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
        """The agents of the rows marked in `ended`, [rows], do not come back."""
        slots = visit.slots if visit.inverse is None else visit.slots[visit.inverse]
        self._ended[slots[ended]] = True

    def state(self, visit: Visit) -> Floats:
        """A copy of the recurrent states, [agents, state_width]."""
        return self._state[visit.slots]

    def advance(
        self, visit: Visit, ended: npt.NDArray[np.bool_] | None, state: Floats | None
    ) -> None:
        """
        Every row has acted.

        ended: [rows], the episode ended with this row. state: [agents, state_width], the states
        that follow.
        """
        slots = visit.slots
        self._steps[slots] += visit.counts
        if ended is not None:
            if visit.inverse is not None:
                rows, ended = ended, np.zeros(len(slots), np.bool_)
                ended[visit.inverse] = rows  # the last row of an agent is the one that stays
            self._ended[slots] = ended
        if state is not None:
            self._state[slots] = state

    def forget(self, key: int) -> None:
        """Drop the agents of session `key`."""
        self._drop(self._keys[self._slots] == np.uint64(key))

    def _find(self, hashes: Words, keys: Words) -> Visit:
        agents, first, inverse, counts = np.unique(
            hashes, return_index=True, return_inverse=True, return_counts=True
        )
        self._touch()
        at = np.searchsorted(self._hashes, agents)
        known = at < len(self._hashes)
        known[known] = self._hashes[at[known]] == agents[known]
        new = ~known
        if new.any():
            self._insert(agents, keys[first], new)
            at = np.searchsorted(self._hashes, agents)
        slots = self._slots[at]
        if len(agents) == len(hashes):
            return Visit(slots[inverse], None, None, 1)
        return Visit(slots, inverse, _turns(inverse, counts), counts)

    def _touch(self) -> None:
        """Note when the agents of the last visit were seen: only now it matters."""
        self._tick += 1
        if self._last is not None:
            self._seen[self._last[2].slots] = self._tick

    def _insert(self, agents: Words, keys: Words, new: npt.NDArray[np.bool_]) -> None:
        """Give the `new` ones of the agents of a batch an entry each."""
        coming = _counted(keys[new])
        self._make_room(agents, keys, coming)
        hashes = agents[new]
        if len(self._free) < len(hashes):
            self._grow(len(self._hashes) + len(hashes))
        slots, self._free = self._free[: len(hashes)], self._free[len(hashes) :]
        self._keys[slots] = keys[new]
        self._steps[slots] = 0
        self._seen[slots] = self._tick
        self._ended[slots] = False
        self._state[slots] = 0
        at = np.searchsorted(self._hashes, hashes)
        self._hashes = np.insert(self._hashes, at, hashes)
        self._slots = np.insert(self._slots, at, slots)
        self._live.update(coming)
        self._held.update(_by_guest(coming))

    def _make_room(self, agents: Words, keys: Words, coming: Counter[int]) -> None:
        """
        Forget agents of the sessions that have too many; those of others stay.

        agents, keys: uint64, [agents], all that are in the batch. coming: new agents by session.
        Raises Unavailable, and then nobody is forgotten.
        """
        drop = np.zeros(len(self._hashes), np.bool_)
        quiet = min(self._ended_limit, self._limit)
        for key, count in coming.items():
            if self._live[key] + count > quiet:
                present = int(np.count_nonzero(keys == np.uint64(key)))
                if present > self._limit:
                    raise Unavailable(
                        f"{present} agents of session {key:#x} in one batch;"
                        f" the states of {self._limit} are kept for each session"
                    )
                self._mark_surplus(drop, key, count, agents)
        going = _counted(self._keys[self._slots[drop]]) if drop.any() else Counter()
        leaving = _by_guest(going)
        for guest, count in _by_guest(coming).items():
            more = (count - leaving[guest]) * self._entry_bytes
            self._workspace.require_agents(self, guest, more)
        self._drop(drop)

    def _mark_surplus(
        self, drop: npt.NDArray[np.bool_], key: int, coming: int, agents: Words
    ) -> None:
        """Of one session: agents that ended go first, then any; of each the longest unseen."""
        own = np.flatnonzero(self._keys[self._slots] == np.uint64(key))
        ended = self._ended[self._slots[own]]
        # A slack of an eighth, so that not every batch pays for a few agents over the limit.
        quiet = int(ended.sum()) - self._ended_limit
        over = len(own) + coming - self._limit
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
            going = _counted(self._keys[slots])
            self._live -= going
            self._held -= _by_guest(going)
            self._free = np.concatenate([self._free, slots])
            self._hashes = self._hashes[~drop]
            self._slots = self._slots[~drop]
            self._last = None

    def _grow(self, agents: int) -> None:
        old = len(self._keys)
        size = max(agents, min(max(16, 2 * old), old + _SPARE_BYTES // self._entry_bytes))
        self._keys = _resized(self._keys, size)
        self._steps = _resized(self._steps, size)
        self._seen = _resized(self._seen, size)
        self._ended = _resized(self._ended, size)
        self._state = _resized(self._state, size)
        self._free = np.concatenate([self._free, np.arange(old, size)])


def _turns(inverse: Slots, counts: Slots) -> Slots:
    """How many equal values came before each value of `inverse`."""
    order = np.argsort(inverse, kind="stable")
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    turns = np.empty(len(inverse), np.int64)
    turns[order] = np.arange(len(inverse)) - starts
    return turns


def _counted(keys: Words) -> Counter[int]:
    """How often each key comes."""
    found, counts = np.unique(keys, return_counts=True)
    return Counter(dict(zip(found.tolist(), counts.tolist(), strict=True)))


def _by_guest(counts: Counter[int]) -> Counter[int]:
    """Counts by session as counts by guest."""
    found: Counter[int] = Counter()
    for key, count in counts.items():
        found[key >> _GUEST] += count
    return found


def _resized(values: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    grown = np.zeros((size, *values.shape[1:]), values.dtype)
    grown[: len(values)] = values
    return grown
