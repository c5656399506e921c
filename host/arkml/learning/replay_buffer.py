"""The transitions a learner has: raw rows in a ring, each linked with the row one step later."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.batches import Floats, chunks
from arkml.hive.protocol.audit import checksum, row_hashes
from arkml.hive.protocol.rows import MAX_ROWS, Columns, Kind
from arkml.learning.trajectories import Episodes, TrajectoryIndex

Slots = npt.NDArray[np.int64]
Facts = npt.NDArray[np.bool_]

_LEAST_ROOM = 4_096  # rows
_ROUNDS = 16
_FORGET_FROM = 4_096


class Added(NamedTuple):
    """
    What rows brought.

    returns: float64, [m], discounted rewards of the chains, at every row that follows another.
    """

    returns: npt.NDArray[np.float64]
    episodes: Episodes


class Transitions(NamedTuple):
    """
    n steps of an agent each, raw.

    features, following: float32, [n, F]. actions: float32, [n, A], within [-1, 1]. rewards:
    float32, [n], summed with discount. dones: float32, [n], 1 where nothing comes after.
    discounts: float32, [n], gamma to the power of the steps that were really there.
    """

    features: Floats
    actions: Floats
    following: Floats
    rewards: Floats
    dones: Floats
    discounts: Floats


class Held(NamedTuple):
    """What of the run's rows is in the memory, for an audit. `sessions`: (rows, checksum)."""

    rows: int
    checksum: int
    sessions: dict[int, tuple[int, int]]


class ReplayBuffer:
    """
    The newest rows up to `capacity`, in as much memory as twice the rows that have come take.

    A row is linked when the row exactly one step later arrives while it is still held. A chain
    that breaks off ends at its last known row, from where values are estimated: only Terminal
    says that nothing follows, and only with `masking`.
    """

    def __init__(
        self, capacity: int, features: int, actions: int, *, gamma: float, masking: bool = True
    ) -> None:
        self.rows = 0
        """Rows that came, those overwritten since included."""
        self.transitions = 0
        """Rows held that are linked with the next."""
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
        """Rows in the memory."""
        return min(self.rows, self._capacity)

    def add(self, session: int, kind: int, columns: Columns) -> Added:
        """
        Take in rows of one session, in push order.

        Raises MemoryError if there is no room for them, and takes none then.
        """
        self._reserve(min(self.rows + len(columns), self._capacity))
        chains = self._chains.setdefault((session, kind), TrajectoryIndex(self._gamma))
        parts = [
            self._add(chains, session, kind, columns.take(rows))
            for rows in chunks(len(columns), min(self._capacity, MAX_ROWS))
        ] or [Added(np.zeros(0), Episodes(np.zeros(0), np.zeros(0, np.int64)))]
        self._listed.clear()
        if sum(map(len, self._chains.values())) > self._forget_at:
            self._forget()
        if len(parts) == 1:
            return parts[0]
        episodes = (np.concatenate(each) for each in zip(*(p.episodes for p in parts), strict=True))
        return Added(np.concatenate([part.returns for part in parts]), Episodes(*episodes))

    def cut(self, session: int) -> None:
        """End all chains of a session: rows of it were lost."""
        for (owner, _), chains in self._chains.items():
            if owner == session:
                chains.clear()

    def draw(self, random: np.random.Generator, count: int, demonstrations: float = 0.0) -> Slots:
        """
        Slots of linked rows, int64, [count], drawn with replacement.

        `demonstrations` is the share of them that comes from demonstrations, if there are any; 0
        treats those as any other row. There must be at least one transition.
        """
        if not demonstrations:
            return self._draw(random, count, None)
        shown = len(self._list(True))
        wanted = round(count * demonstrations)
        if not shown:
            wanted = 0
        elif shown == self.transitions:
            wanted = count
        drawn = (self._draw(random, n, k) for n, k in ((wanted, True), (count - wanted, False)))
        return np.concatenate(list(drawn))

    def gather(self, slots: Slots, length: int) -> Transitions:
        """The transitions of up to `length` steps that begin at linked rows."""
        rewards = np.zeros(len(slots))
        discounts = np.ones(len(slots))
        last = slots
        for _ in range(length):
            following = self._next[last]
            going = following >= 0
            if not going.any():
                break
            last = np.where(going, following, last)
            rewards += np.where(going, discounts * self._rewards[last], 0.0)
            discounts[going] *= self._gamma
        ended = self._states[last] == EpisodeState.TERMINAL
        return Transitions(
            self._features[slots],
            np.clip(self._actions[slots], -1.0, 1.0),
            self._features[last],
            rewards.astype(np.float32),
            (ended & self._masking).astype(np.float32),
            discounts.astype(np.float32),
        )

    def audit(self) -> Held:
        """Counts and checksums of the rows held."""
        hashes, owners = self._hashes[: self.held], self._sessions[: self.held]
        sessions = {
            int(owner): (int((owners == owner).sum()), checksum(hashes[owners == owner]))
            for owner in np.unique(owners)
        }
        return Held(self.held, checksum(hashes), sessions)

    def _reserve(self, rows: int) -> None:
        """Make room for `rows` rows at least. It doubles: each row is copied once on average."""
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
                f"there is no memory for {room:,} rows of {self._features.shape[1]:,} features"
                f" ({error}): set a smaller memory_max_size"
            ) from error
        for larger, array in zip(after, before, strict=True):
            larger[:held] = array
        (
            self._features, self._actions, self._rewards, self._states,
            self._kinds, self._sessions, self._hashes, self._next,
        ) = after  # fmt: skip
        self._next[held:] = -1

    def _add(self, chains: TrajectoryIndex, session: int, kind: int, columns: Columns) -> Added:
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
        """Agents that never ended must not pile up once their rows are gone."""
        for chains in self._chains.values():
            chains.forget(self.rows - self._capacity)
        remaining = sum(map(len, self._chains.values()))
        self._forget_at = max(_FORGET_FROM, 2 * remaining)

    def _draw(self, random: np.random.Generator, count: int, shown: bool | None) -> Slots:
        """Slots of linked rows: all, demonstrations only, or all but those."""
        found: list[Slots] = []
        missing = count
        # Most rows are linked as a rule, and then a list of them costs more than a few misses.
        rounds = 0 if shown or 8 * self.transitions < self.held else _ROUNDS
        for _ in range(rounds):
            slots = random.integers(0, self.held, missing + missing // 8 + 8)
            found.append(slots[self._fits(slots, shown)][:missing])
            missing -= len(found[-1])
            if not missing:
                return np.concatenate(found)
        listed = self._list(shown)
        found.append(listed[random.integers(0, max(1, len(listed)), missing)])
        return np.concatenate(found)

    def _fits(self, slots: Slots | slice, shown: bool | None) -> Facts:
        linked: Facts = self._next[slots] >= 0
        if shown is not None:
            linked &= (self._kinds[slots] == Kind.DEMONSTRATION) == shown
        return linked

    def _list(self, shown: bool | None) -> Slots:
        if shown not in self._listed:
            self._listed[shown] = np.flatnonzero(self._fits(slice(0, self.held), shown))
        return self._listed[shown]
