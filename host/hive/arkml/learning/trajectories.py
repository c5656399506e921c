"""
Chains of consecutive rows of one agent, kept for each session and each kind of rows.

A row that does not come exactly one step after its agent's newest row begins a new chain, so a lost
row leaves a gap and no false transition (decision 7).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.arrays import Marks
from arkml.hive.protocol.rows import RowColumns
from arkml.learning.robust_moments import REWARD_REACH, RobustMoments

Numbers = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

# numpy compares with an enumeration slowly.
_TERMINAL, _INTERRUPTED, _INITIAL = map(
    int, (EpisodeState.TERMINAL, EpisodeState.INTERRUPTED, EpisodeState.INITIAL)
)

_HEAD = np.dtype(
    [
        ("number", "<i8"),
        ("nth", "<i8"),
        ("step", "<i8"),
        ("discounted", "<f8"),
        ("total", "<f8"),
        ("whole", "?"),
    ]
)
"""
The newest row of an agent: its number among the rows of the run and of the index, and its step;
rewards so far, discounted and plain; whether the chain began with the first row of the episode.
"""


def ends_of(state: npt.NDArray[np.uint8]) -> Marks:
    """Return which rows end their episodes, by the states of the rows: bool, [n]."""
    ended: Marks = (state == _TERMINAL) | (state == _INTERRUPTED)
    return ended


class FinishedEpisodes(NamedTuple):
    """
    Episodes that have ended, and of which no row is missing.

    returns: float64, [n], sums of rewards. lengths: int64, [n], steps from the first row. rows:
    int64, [n], the places of their last rows among those that were added, ascending.
    """

    returns: Doubles
    lengths: Numbers
    rows: Numbers


class Extension(NamedTuple):
    """
    Links of newly added rows to their agents' previous rows, in row order.

    previous: int64, [n], the number of the row one step earlier, -1 where a chain begins.
    discounted: float64, [n], the discounted sum of the chain's rewards so far, each clipped to the
    bounds; 0 where a chain begins.
    """

    previous: Numbers
    discounted: Doubles
    episodes: FinishedEpisodes


class RewardBounds(NamedTuple):
    """The smallest and largest reward that count in discounted sums; 0 lies between them."""

    low: float = -math.inf
    high: float = math.inf


_UNBOUNDED = RewardBounds()
_LEAST_HEADS = 8  # few agents are the rule, and sessions may be many
_LEAST_DISCOUNT = 1e-12  # for chains that are shorter than its inverse
_FORGET_FROM = 4_096
_REACH = 2  # rows of each agent, on average, within which all that play have one


class TrajectoryIndex:
    """
    The open chains of consecutive rows in one session and of one kind.

    Agents are looked up in a dictionary once for each body of rows; all else is done in arrays.
    `gamma` discounts rewards.
    """

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma
        self._rows = 0
        self._slots: dict[int, int] = {}
        self._heads = np.zeros(0, _HEAD)
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._slots)

    def clear(self) -> None:
        """End all chains, which then have no further rows."""
        self._slots.clear()
        self._free = list(range(len(self._heads)))

    def count_playing(self) -> int:
        """
        Return the number of agents that play side by side, without those that vanished.

        It is the largest n for which n agents have a row among the last `_REACH` times n rows. A
        guest may let an agent go without a last row, and use another number for the next one: at
        that moment both count.
        """
        slots = np.fromiter(self._slots.values(), np.int64, len(self._slots))
        ages = np.sort(self._rows - self._heads["nth"][slots])
        playing = np.flatnonzero(ages <= _REACH * np.arange(1, len(ages) + 1))
        return int(playing[-1]) + 1 if len(playing) else 0

    def forget(self, before: int) -> None:
        """End the chains whose newest row has a number under `before`."""
        numbers = self._heads["number"]
        ended = [agent for agent, slot in self._slots.items() if numbers[slot] < before]
        self._free += [self._slots.pop(agent) for agent in ended]

    def extend(
        self, columns: RowColumns, first: int, bounds: RewardBounds = _UNBOUNDED
    ) -> Extension:
        """
        Add rows in push order, and return their links.

        Args:
            columns: The rows.
            first: The number of the first row; the others follow.
            bounds: The bounds to which rewards are clipped in returns.

        """
        if not len(columns):  # all rows of the body were refused
            none = np.zeros(0, np.int64)
            return Extension(none, np.zeros(0), FinishedEpisodes(np.zeros(0), none, none))
        order = np.argsort(columns.agent, kind="stable")
        rows = _Sorted(columns, order, first)
        slots = self._find(rows.agents)
        known = slots >= 0
        heads = self._heads[np.maximum(slots, 0)] if len(self._heads) else np.zeros(1, _HEAD)
        rows.follow(known, heads)
        chains = rows.chains(known, heads, self.gamma, bounds)
        chains["nth"] = order + self._rows
        self._rows += len(order)
        self._store(rows, slots, chains)
        previous = np.empty(len(order), np.int64)
        discounted = np.empty(len(order))
        previous[order] = np.where(rows.follows, rows.previous, -1)
        discounted[order] = np.where(rows.follows, chains["discounted"], 0.0)
        return Extension(previous, discounted, rows.finished(chains))

    def _find(self, agents: list[int]) -> Numbers:
        slots = map(self._slots.get, agents, repeat(-1))
        return np.fromiter(slots, np.int64, len(agents))

    def _store(self, rows: _Sorted, slots: Numbers, chains: npt.NDArray[Any]) -> None:
        """Make the last row of each agent its head, and forget the agents that ended."""
        ended = rows.ended[rows.lasts]
        agents = np.array(rows.agents, object)
        self._free += [self._slots.pop(agent) for agent in agents[ended & (slots >= 0)]]
        fresh = np.flatnonzero(~ended & (slots < 0))
        self._reserve(len(fresh))
        slots[fresh] = [self._free.pop() for _ in range(len(fresh))]
        self._slots.update(zip(agents[fresh], slots[fresh].tolist(), strict=True))
        self._heads[slots[~ended]] = chains[rows.lasts[~ended]]

    def _reserve(self, count: int) -> None:
        missing = count - len(self._free)
        if missing > 0:
            size = len(self._heads)
            more = max(missing, size, _LEAST_HEADS)
            self._heads = np.concatenate([self._heads, np.zeros(more, _HEAD)])
            self._free += range(size + more - 1, size - 1, -1)


def linear_recurrence(values: Doubles, factors: Doubles) -> Doubles:
    """
    Return x with x[i] = values[i] + factors[i] * x[i - 1]; a factor of 0 begins a new chain.

    values, factors, x: float64, [n]. Each pass joins every partial sum with the sum that precedes
    it by its own length (Hillis and Steele), so n rows take log2 of the longest chain passes.
    """
    sums = values.copy()
    reach = factors.copy()
    reach[:1] = 0.0
    distance = 1
    while distance < len(sums) and reach[distance:].any():
        sums[distance:] += reach[distance:] * sums[:-distance]
        reach[distance:] = reach[distance:] * reach[:-distance]
        reach[:distance] = 0.0
        distance *= 2
    return sums


class _Sorted:
    """
    Rows by agent, each agent's in push order.

    starts, lasts: int64, [agents], the first and the last row of each. follows: bool, [n], True
    where the row comes one step after the row `previous` of an episode that had not ended.
    """

    def __init__(self, columns: RowColumns, order: Numbers, first: int) -> None:
        agent = columns.agent[order]
        state = columns.state[order]
        self._order = order
        self._begins = np.ones(len(order), bool)
        np.not_equal(agent[1:], agent[:-1], out=self._begins[1:])
        self.starts = np.flatnonzero(self._begins)
        self.lasts = np.append(self.starts[1:], len(order)) - 1
        self.agents: list[int] = agent[self.starts].tolist()
        self.numbers = order + first
        self.step = columns.step[order].astype(np.int64)
        self.reward = columns.reward[order].astype(np.float64)
        self.ended = ends_of(state)
        self._initial = state == _INITIAL
        self.previous: Numbers = np.full(len(order), -1, np.int64)
        self.follows: npt.NDArray[np.bool_] = np.zeros(len(order), bool)

    def follow(self, known: npt.NDArray[np.bool_], heads: npt.NDArray[Any]) -> None:
        """Find the row before each row. known: bool, [agents]. heads: _HEAD, [agents]."""
        before = np.full(len(self.step), -2, np.int64)
        before[1:] = np.where(self.ended[:-1], -2, self.step[:-1])
        self.previous[1:] = self.numbers[:-1]
        before[self.starts] = np.where(known, heads["step"], -2)
        self.previous[self.starts] = np.where(known, heads["number"], -1)
        self.follows = (self.step == before + 1) & ~self._initial

    def chains(
        self,
        known: npt.NDArray[np.bool_],
        heads: npt.NDArray[Any],
        gamma: float,
        bounds: RewardBounds,
    ) -> npt.NDArray[Any]:
        """Return every row as the head of its chain up to there: _HEAD, [n]."""
        result = np.zeros(len(self.step), _HEAD)
        result["number"] = self.numbers
        result["step"] = self.step
        inner = self.follows & ~self._begins
        joined = inner.astype(np.float64)
        continues = np.where(known & self.follows[self.starts], 1.0, 0.0)
        # The reward of a row that begins a chain belongs to a step that is not in the rows.
        reward = np.where(self.follows, self.reward, 0.0)
        # The bounds may have been wider when the head was made, and its sum beyond any within them.
        low, high = (bound / max(1.0 - gamma, _LEAST_DISCOUNT) for bound in bounds)
        before = np.clip(heads["discounted"], low, high)
        for name, factor, values, head in (
            ("discounted", gamma, np.clip(reward, *bounds), before),
            ("total", 1.0, reward, heads["total"]),
        ):
            values[self.starts] += factor * continues * head
            result[name] = linear_recurrence(values, factor * joined)
        begun = self.step == 0
        begun[self.starts] = np.where(continues > 0, heads["whole"], begun[self.starts])
        origin = np.maximum.accumulate(np.where(inner, 0, np.arange(len(inner))))
        result["whole"] = begun[origin]
        return result

    def finished(self, chains: npt.NDArray[Any]) -> FinishedEpisodes:
        """Return the whole episodes that ended in these rows, in push order. chains: _HEAD, [n]."""
        chosen = np.flatnonzero(self.ended & self.follows & chains["whole"])
        chosen = chosen[np.argsort(self._order[chosen])]
        rows = self._order[chosen]
        return FinishedEpisodes(chains["total"][chosen], self.step[chosen], rows)


class SessionChains:
    """
    An index of chains for each session and kind of rows, and the bounds of all their rewards.

    Some agents never end, and some sessions vanish without a message; both leave chains behind.
    Once there are many chains, the ones whose rows are too old are forgotten.
    """

    def __init__(self, gamma: float) -> None:
        self._gamma = gamma
        self._rewards = RobustMoments(1, REWARD_REACH)
        self._indexes: dict[tuple[int, int], TrajectoryIndex] = {}
        self._counted = 0  # chains and indexes
        self._forget_at = _FORGET_FROM

    def discount(self, gamma: float) -> None:
        """Set another discount factor for the rewards of later rows."""
        self._gamma = gamma
        for index in self._indexes.values():
            index.gamma = gamma

    def note_rewards(self, rewards: npt.NDArray[np.float32]) -> None:
        """Add the rewards of new rows, [n], to the statistics that give the bounds."""
        self._rewards.add(rewards[:, None])

    @property
    def reward_bounds(self) -> RewardBounds:
        """The smallest and largest reward that is not an extreme outlier; 0 lies between them."""
        low, high = self._rewards.bounds
        return RewardBounds(min(float(low[0]), 0.0), max(float(high[0]), 0.0))

    def index(self, session: int, kind: int) -> TrajectoryIndex:
        """Return the index of chains for a session and kind of rows, made on first use."""
        found = self._indexes.get((session, kind))
        if found is None:
            found = self._indexes[session, kind] = TrajectoryIndex(self._gamma)
            self._counted += 1
        return found

    def count_playing(self, kind: int) -> int:
        """Return the number of agents that play side by side in all sessions, by rows of a kind."""
        return sum(index.count_playing() for (_, of), index in self._indexes.items() if of == kind)

    def count(self, opened: int, oldest: Callable[[int], int]) -> None:
        """
        Count `opened` more chains in an index, a negative number if more have ended.

        If there are many, forgets chains whose rows are older than number `oldest(kind)`, and
        sessions without other chains.
        """
        self._counted += opened
        if self._counted <= self._forget_at:
            return
        for (_, kind), index in self._indexes.items():
            index.forget(oldest(kind))
        self._indexes = {key: index for key, index in self._indexes.items() if len(index)}
        self._counted = len(self._indexes) + sum(map(len, self._indexes.values()))
        self._forget_at = max(_FORGET_FROM, 2 * self._counted)

    def cut(self, session: int) -> None:
        """End all chains of a session that has lost rows."""
        for (owner, _), index in self._indexes.items():
            if owner == session:
                self._counted -= len(index)
                index.clear()
