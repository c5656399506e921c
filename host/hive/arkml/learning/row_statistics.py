"""Statistics of a run's rows: episodes in order, metrics of the guest, and dropped rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.hive.protocol.masks import PREFIX
from arkml.hive.protocol.rows import GUEST_SHIFT, Record, RowKind
from arkml.learning.trajectories import FinishedEpisodes, ends_of
from arkml.learning.version_ratings import VersionRatings

WINDOW = 100
"""Episodes that means are taken over."""

_PATIENCE = 20
"""Episodes of each agent, on average, that may begin after one that does not end."""

_AGENT_BITS = 64

Point = tuple[str, float]


class Episode(NamedTuple):
    """An episode that has ended: its return, and its length in steps."""

    total: float
    length: int


@dataclass(slots=True)
class _Together:
    """Episodes that began side by side, None while one plays; `playing` are not over yet."""

    agents: Sequence[int]
    ended: list[Episode | None]
    playing: int


class EpisodesInOrder:
    """
    Keeps the last episodes that have ended, in the order in which they began.

    While the first long episodes still play, the last episodes to end are short ones, so their mean
    is biased. Therefore an episode counts once it and all episodes that began before it, or at the
    same time, have ended. An episode is no longer waited for when its agent has begun another one,
    or when the other agents have begun many more.
    """

    def __init__(self) -> None:
        self.last: deque[Episode] = deque(maxlen=WINDOW)
        self._order: deque[_Together] = deque()
        self._waiting = 0  # episodes in it
        self._open: dict[int, tuple[_Together, int]] = {}

    def begin(self, agents: Sequence[int]) -> None:
        """
        Note that an episode of each of these agents begins, all at the same time.

        An earlier episode of such an agent that did not end is forgotten.
        """
        for agent in agents:
            self.leave(agent)
        together = _Together(agents, [None] * len(agents), len(agents))
        self._open.update((agent, (together, place)) for place, agent in enumerate(agents))
        self._order.append(together)
        self._waiting += len(agents)
        while self._waiting > WINDOW + _PATIENCE * len(self._open):
            self._give_up_oldest()

    def end(self, agent: int, episode: Episode) -> None:
        """Note the end of an agent's episode. If its beginning is unknown, it counts at once."""
        if agent in self._open:
            self._close(agent, episode)
        else:
            self.last.append(episode)

    def __contains__(self, agent: int) -> bool:
        return agent in self._open

    def cut_off(self, agents: Iterable[int], guest_of: Callable[[int], int]) -> set[int]:
        """
        Forget episodes that began after the episodes of `agents`, in the same guests.

        The agents have reached the limit at which their guests are cut off: of the episodes that
        began later, only short ones had time to end. Returns the agents whose episodes are
        forgotten.
        """
        full: dict[int, set[int]] = {}
        for agent in agents:
            if agent in self._open:
                full.setdefault(id(self._open[agent][0]), set()).add(guest_of(agent))
        guests: set[int] = set()
        late = set()
        for together in tuple(self._order) if full else ():
            for place, agent in enumerate(together.agents if guests else ()):
                if guest_of(agent) in guests:
                    late.add(agent)
                    together.ended[place] = None
            guests |= full.get(id(together), set())
        for agent in late:
            self.leave(agent)
        return late

    def leave(self, agent: int) -> None:
        """Forget the present episode of an agent, which then counts nowhere."""
        if agent in self._open:
            self._close(agent, None)

    def _close(self, agent: int, episode: Episode | None) -> None:
        """Close an episode, and count all episodes that no longer wait for another one."""
        together, place = self._open.pop(agent)
        together.ended[place] = episode
        together.playing -= 1
        order = self._order
        while order and not order[0].playing:
            ended = order.popleft().ended
            self._waiting -= len(ended)
            self.last.extend(one for one in ended if one is not None)

    def _give_up_oldest(self) -> None:
        self.leave(next(iter(self._open)))  # in the order in which they began, too


class RowStatistics:
    """
    Counts rows, episodes and metrics of a run, but not rows that a restarted learner reads again.

    `most` is the number of steps after which guests are cut off, 0 for no limit: when an episode
    reaches it, episodes that began later do not count, because only short ones had time to end.
    """

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self.episodes = 0
        self.dropped = 0
        self.non_finite = 0
        self.ratings = VersionRatings()
        self._last = EpisodesInOrder()
        self._guest: dict[int, _Mean] = {}
        self._names: list[str] = []

    def name(self, names: list[str]) -> None:
        """Set the names of the guest's metrics, in the order of their numbers."""
        self._names = list(names)

    def count(self, record: Record, episodes: FinishedEpisodes) -> None:
        """Count a record and the episodes that ended in it."""
        self.dropped += record.header.dropped
        self.non_finite += record.header.non_finite
        if record.header.kind == RowKind.TRAINING:
            self.episodes += len(episodes.returns)
            self._follow(record, episodes)
        meta = record.columns.meta
        for number in np.unique(meta["name"]).tolist():
            values = meta["value"][meta["name"] == number]
            self._guest.setdefault(number, _Mean()).add(values[np.isfinite(values)])

    def points(self) -> Iterator[Point]:
        """Yield the values to record now, as pairs (tag, value)."""
        if self._last.last:
            returns = [one.total for one in self._last.last]
            low, high = np.percentile(returns, (10, 90)).tolist()
            yield "rollout/ep_rew_mean", float(np.mean(returns))
            yield "rollout/ep_rew_p10", low
            yield "rollout/ep_rew_p90", high
            yield "rollout/ep_len_mean", float(np.mean([one.length for one in self._last.last]))
        yield "time/episodes", float(self.episodes)
        yield "hive/dropped", float(self.dropped)
        yield "features/non_finite", float(self.non_finite)
        for number, mean in self._guest.items():
            value = mean.take()
            if value is None or number >= len(self._names):
                continue
            if not self._names[number].startswith(PREFIX):
                yield f"guest/{self._names[number]}", value

    def as_json(self) -> dict[str, Any]:
        """Return the state that a restart needs, as JSON values."""
        return {
            "episodes": self.episodes,
            "dropped": self.dropped,
            "non_finite": self.non_finite,
            "returns": [one.total for one in self._last.last],
            "lengths": [one.length for one in self._last.last],
        }

    def restore(self, values: Mapping[str, Any]) -> None:
        """Continue from the result of `as_json`."""
        self.episodes = int(values["episodes"])
        self.dropped = int(values["dropped"])
        self.non_finite = int(values.get("non_finite", 0))  # older checkpoints lack it
        kept = zip(values["returns"], values["lengths"], strict=True)
        self._last.last.extend(Episode(float(total), int(length)) for total, length in kept)

    def _follow(self, record: Record, episodes: FinishedEpisodes) -> None:
        """Apply the episodes that began and ended, in the order of the rows."""
        rows = record.columns
        totals, lengths = np.zeros(len(rows)), np.full(len(rows), -1)  # -1: rows are missing
        totals[episodes.rows], lengths[episodes.rows] = episodes.returns, episodes.lengths
        is_end = ends_of(rows.state)
        events = np.flatnonzero(is_end | (rows.step == 0))
        columns = (rows.agent, rows.version, is_end, rows.state, rows.step, totals, lengths)
        begun: dict[int, None] = {}  # agents that began side by side, under one version
        cut: dict[int, Episode | None] = {}
        full: list[int] = []
        under = 0
        listed = (column[events].tolist() for column in columns)
        for agent, version, ends, state, step, total, length in zip(*listed, strict=True):
            key = record.session << _AGENT_BITS | agent
            if begun and (ends or version != under or key in begun):
                self._begin(list(begun), under)
                begun = {}
            if not ends:
                begun[key] = None
                under = version
                continue
            episode = Episode(total, length) if length >= 0 else None
            if self._most and state == EpisodeState.INTERRUPTED:
                cut[key] = episode
                full += [key] if step >= self._most else []
            else:
                self._end(key, episode)
        if begun:
            self._begin(list(begun), under)
        self._cut_off(cut, full)

    def _cut_off(self, cut: Mapping[int, Episode | None], full: Sequence[int]) -> None:
        """End the episodes `cut` of guests in which agents `full` reached the limit of steps."""
        self.ratings.take_back(self._last.cut_off(full, _guest))
        for agent, episode in cut.items():
            self._end(agent, episode)

    def _end(self, agent: int, episode: Episode | None) -> None:
        """End an episode; None stands for an episode with missing rows."""
        if self._most and agent not in self._last:
            return  # it was forgotten
        if episode is None:
            self._last.leave(agent)
            self.ratings.leave(agent)
        else:
            self._last.end(agent, episode)
            self.ratings.end(agent, episode.total)

    def _begin(self, agents: list[int], version: int) -> None:
        """Begin episodes side by side under a version."""
        self._last.begin(agents)
        self.ratings.begin(agents, version)


def _guest(agent: int) -> int:
    """Return the guest of an agent, whose number is in the upper bits of the agent's number."""
    return agent >> GUEST_SHIFT


class _Mean:
    """Mean of the values since it was last taken, at least of the last WINDOW."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._count = 0
        self._last: npt.NDArray[Any] = np.zeros(0, np.float32)

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add values: float32, [n]."""
        self._sum += float(values.sum(dtype=np.float64))
        self._count += len(values)
        self._last = np.concatenate([self._last, values[-WINDOW:]])[-WINDOW:]

    def take(self) -> float | None:
        """Return the mean, None if there was no value since the last call."""
        if not self._count:
            return None
        is_full = self._count >= WINDOW
        mean = self._sum / self._count if is_full else float(self._last.mean(dtype=np.float64))
        self._sum, self._count = 0.0, 0
        return mean
