"""The replay buffer: raw rows in a ring, each linked with the row one step later."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.batches import Floats, chunks
from arkml.hive.protocol.audit import checksum, row_hashes
from arkml.hive.protocol.rows import MAX_ROWS, RowColumns, RowKind
from arkml.learning.algorithm import Added, HeldRows
from arkml.learning.trajectories import FinishedEpisodes, TrajectoryIndex

Slots = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]

_LEAST_ROOM = 4_096  # rows
_ROUNDS = 16
_FORGET_FROM = 4_096


class Transitions(NamedTuple):
    """
    Transitions of one or more steps each, not normalized.

    features, following: float32, [n, F], before the first step and after the last. actions:
    float32, [n, A], within [-1, 1]. rewards: float32, [n], discounted sums over the steps. dones:
    float32, [n], 1 where the episode terminated. discounts: float32, [n], gamma to the power of the
    steps that the buffer holds.
    """

    features: Floats
    actions: Floats
    following: Floats
    rewards: Floats
    dones: Floats
    discounts: Floats


class ReplayBuffer:
    """
    Holds the newest rows up to `capacity`; its arrays grow to twice the rows added at most.

    A row is linked when the row exactly one step later is added while it is still held. A chain
    that breaks off ends at its last known row, where values are bootstrapped: only a Terminal row
    has no value after it, and only with `masking`.
    """

    def __init__(
        self, capacity: int, features: int, actions: int, *, gamma: float, masking: bool = True
    ) -> None:
        self.rows = 0
        """Rows added, including those overwritten since."""
        self.transitions = 0
        """Rows held that are linked with a next one."""
        self._capacity = capacity
        self._gamma = gamma
        self._masking = masking
        self._features: Floats = np.zeros((0, features), np.float32)
        self._actions: Floats = np.zeros((0, actions), np.float32)
        self._rewards: Floats = np.zeros(0, np.float32)
        self._states = np.zeros(0, np.uint8)
        self._kinds = np.zeros(0, np.uint8)
        self._sessions = np.zeros(0, np.uint32)
        self._hashes = np.zeros(0, np.uint64)
        self._next: Slots = np.zeros(0, np.int64)
        self._chains: dict[tuple[int, int], TrajectoryIndex] = {}
        self._forget_at = _FORGET_FROM
        self._listed: dict[bool | None, Slots] = {}

    @property
    def held(self) -> int:
        """Rows in the buffer."""
        return min(self.rows, self._capacity)

    def add(self, session: int, kind: int, columns: RowColumns) -> Added:
        """
        Add rows of one session, in push order.

        Raises MemoryError if there is no room for them, and then adds none.
        """
        self._reserve(min(self.rows + len(columns), self._capacity))
        chains = self._chains.setdefault((session, kind), TrajectoryIndex(self._gamma))
        parts = [
            self._add(chains, session, kind, columns.take(rows))
            for rows in chunks(len(columns), min(self._capacity, MAX_ROWS))
        ] or [Added(np.zeros(0), FinishedEpisodes(np.zeros(0), np.zeros(0, np.int64)))]
        self._listed.clear()
        if sum(map(len, self._chains.values())) > self._forget_at:
            self._forget()
        if len(parts) == 1:
            return parts[0]
        episodes = (np.concatenate(each) for each in zip(*(p.episodes for p in parts), strict=True))
        return Added(np.concatenate([part.returns for part in parts]), FinishedEpisodes(*episodes))

    def cut(self, session: int) -> None:
        """End all chains of a session, of which rows were lost."""
        for (owner, _), chains in self._chains.items():
            if owner == session:
                chains.clear()

    def draw(self, random: np.random.Generator, count: int, demonstrations: float = 0.0) -> Slots:
        """
        Draw slots of linked rows with replacement: int64, [count].

        `demonstrations` is the share drawn from demonstrations, if there are any; with 0 those are
        drawn like other rows. There must be at least one transition.
        """
        if not demonstrations:
            return self._draw(random, count, None)
        available = len(self._list(True))
        wanted = round(count * demonstrations)
        if not available:
            wanted = 0
        elif available == self.transitions:
            wanted = count
        parts = (self._draw(random, n, k) for n, k in ((wanted, True), (count - wanted, False)))
        return np.concatenate(list(parts))

    def gather(self, slots: Slots, length: int) -> Transitions:
        """Return the transitions of up to `length` steps that begin at `slots`: int64, [n]."""
        rewards = np.zeros(len(slots))
        discounts = np.ones(len(slots))
        last = slots
        for _ in range(length):
            following = self._next[last]
            has_next = following >= 0
            if not has_next.any():
                break
            last = np.where(has_next, following, last)
            rewards += np.where(has_next, discounts * self._rewards[last], 0.0)
            discounts[has_next] *= self._gamma
        ended = self._states[last] == EpisodeState.TERMINAL
        return Transitions(
            self._features[slots],
            np.clip(self._actions[slots], -1.0, 1.0),
            self._features[last],
            rewards.astype(np.float32),
            (ended & self._masking).astype(np.float32),
            discounts.astype(np.float32),
        )

    def audit(self) -> HeldRows:
        """Return counts and checksums of the rows held."""
        hashes, owners = self._hashes[: self.held], self._sessions[: self.held]
        sessions = {
            int(owner): (int((owners == owner).sum()), checksum(hashes[owners == owner]))
            for owner in np.unique(owners)
        }
        return HeldRows(self.held, checksum(hashes), sessions)

    def _reserve(self, rows: int) -> None:
        """Make room for at least `rows` rows, doubling: each row is copied once on average."""
        held = len(self._next)
        if rows <= held:
            return
        room = min(max(rows, 2 * held, _LEAST_ROOM), self._capacity)
        before = (
            self._features, self._actions, self._rewards, self._states,
            self._kinds, self._sessions, self._hashes, self._next,
        )  # fmt: skip
        try:
            after = [np.zeros((room, *array.shape[1:]), array.dtype) for array in before]
        except MemoryError as error:
            raise MemoryError(
                f"no memory for {room:,} rows of {self._features.shape[1]:,} features"
                f" ({error}): set a smaller memory_max_size"
            ) from error
        for larger, array in zip(after, before, strict=True):
            larger[:held] = array
        (
            self._features, self._actions, self._rewards, self._states,
            self._kinds, self._sessions, self._hashes, self._next,
        ) = after  # fmt: skip
        self._next[held:] = -1

    def _add(self, chains: TrajectoryIndex, session: int, kind: int, columns: RowColumns) -> Added:
        count, first = len(columns), self.rows
        extension = chains.extend(columns, first)
        slots = np.arange(first, first + count) % self._capacity
        self.transitions -= int((self._next[slots] >= 0).sum())
        self.rows += count
        self._next[slots] = -1
        self._features[slots] = columns.features
        self._actions[slots] = columns.action
        self._rewards[slots] = columns.reward
        self._states[slots] = columns.state
        self._kinds[slots] = kind
        self._sessions[slots] = session
        self._hashes[slots] = row_hashes(session, kind, columns)
        previous = extension.previous
        linked = previous >= max(0, self.rows - self._capacity)
        self._next[previous[linked] % self._capacity] = slots[linked]
        self.transitions += int(linked.sum())
        return Added(extension.discounted[previous >= 0], extension.episodes)

    def _forget(self) -> None:
        """Drop the chains of agents that never ended and whose rows have been overwritten."""
        for chains in self._chains.values():
            chains.forget(self.rows - self._capacity)
        remaining = sum(map(len, self._chains.values()))
        self._forget_at = max(_FORGET_FROM, 2 * remaining)

    def _draw(self, random: np.random.Generator, count: int, is_demo: bool | None) -> Slots:
        """Draw slots of linked rows: all, demonstrations only, or others only."""
        drawn: list[Slots] = []
        missing = count
        # Most rows are linked as a rule; listing those costs more than a few misses.
        rounds = 0 if is_demo or 8 * self.transitions < self.held else _ROUNDS
        for _ in range(rounds):
            slots = random.integers(0, self.held, missing + missing // 8 + 8)
            drawn.append(slots[self._matches(slots, is_demo)][:missing])
            missing -= len(drawn[-1])
            if not missing:
                return np.concatenate(drawn)
        listed = self._list(is_demo)
        drawn.append(listed[random.integers(0, max(1, len(listed)), missing)])
        return np.concatenate(drawn)

    def _matches(self, slots: Slots | slice, is_demo: bool | None) -> Marks:
        linked: Marks = self._next[slots] >= 0
        if is_demo is not None:
            linked &= (self._kinds[slots] == RowKind.DEMONSTRATION) == is_demo
        return linked

    def _list(self, is_demo: bool | None) -> Slots:
        if is_demo not in self._listed:
            self._listed[is_demo] = np.flatnonzero(self._matches(slice(0, self.held), is_demo))
        return self._listed[is_demo]
