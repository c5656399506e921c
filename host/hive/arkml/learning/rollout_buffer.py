"""
The rollout buffer of PPO and its pace: rows of the newest policy versions, until they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.arrays import Marks
from arkml.batches import Floats
from arkml.hive.protocol.audit import is_audited, row_hashes
from arkml.hive.protocol.masks import masked_choice
from arkml.hive.protocol.rows import NO_ROW, RowColumns, RowKind
from arkml.hive.protocol.runs import LEAST_AHEAD
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Added, HeldRows
from arkml.learning.ppo_batches import count_minibatches, sequence_steps
from arkml.learning.ppo_plan import discount, planned
from arkml.learning.row_memory import lazy_zeros
from arkml.learning.trajectories import SessionChains, ends_of

Places = npt.NDArray[np.int64]
Columns = Mapping[str, npt.NDArray[Any]]

_MOST_ROLLOUTS = 2
"""Rows that an update takes at most, as a multiple of `rollout_rows`."""

_MOST_MORE = 16_384
"""The most rows that an update takes beyond `rollout_rows`: its program has room for them."""

_LEAST_ROOM = 1_024  # rows
_LEAST_CHAINS = 64
_EPISODES = 100  # at least, over which their lengths are averaged
_REMEMBERED = 1_000_000  # rows after which an agent that sends none is forgotten


class Rollout(NamedTuple):
    """
    The n rows that an update learns from, and m further rows, the last ones of chains.

    Attributes:
        features: float32, [n + m, F], without images.
        images: The images of the n rows, of h earlier rows that are seen together with them, and of
            the m rows: uint8, [n + h + m, B].
        frames: The indices in `images` of the frames seen at each row, the oldest first, -1 before
            its chain began: int64, [n + m, frames].
        actions: float32, [n, A].
        allowed: The allowed choices of all branches, side by side: bool, [n, choices].
        versions: The versions of the policies that acted: uint32, [n].
        following: The index of the next row of the agent, n or more where the chain ends there:
            int64, [n].
        rewards: The rewards that led to the next row: float32, [n].
        dones: True where the next row ends the return: bool, [n].
        memories: The recurrent state of the agent before each row at which a chain begins: float32,
            [n + m, memory].

    """

    features: Floats
    images: npt.NDArray[np.uint8]
    frames: Places
    actions: Floats
    allowed: Marks
    versions: npt.NDArray[np.uint32]
    following: Places
    rewards: Floats
    dones: Marks
    memories: Floats


class Remembered(NamedTuple):
    """
    Recurrent states of agents before rows that were learned from, which the log does not have.

    numbers: int64, [n], the numbers of these rows among all added rows, ascending. memories:
    float32, [n, memory].
    """

    numbers: Places
    memories: Floats

    @classmethod
    def nothing(cls, memory: int) -> Remembered:
        """Return an object for no rows, with states of `memory` values each."""
        return cls(np.zeros(0, np.int64), np.zeros((0, memory), np.float32))


class RolloutBuffer:
    """
    Holds the rows that the next updates learn from, and the rows that follow them.

    A row can be learned from once the agent's next row has come, with its reward. With `lag` 1,
    rows of the policy before the newest one are learned from, too; with 0 they are not. Rows of
    older policies are counted, but kept only if they end a chain, or if later rows may need their
    images.

    The size of a rollout depends on the largest number of simultaneous agents (`ppo_plan`):
    `settings` are the settings for `agents`, and `on_plan` is called with them when new rows have
    changed them, and at the first rows.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        lag: int = 1,
        on_plan: Callable[[Settings], object] = lambda _: None,
    ) -> None:
        self.settings = planned(settings, 1)
        """The settings for so many agents."""
        self.agents = 0
        """The most agents that have played at a time."""
        self.rows = 0
        """Rows added, including those that are not held any more."""
        self.transitions = 0
        """Rows held that can be learned from."""
        self.stale_rows = 0
        """Rows since the start of the process whose policies were too old to learn from them."""
        self.excess_rows = 0
        """Rows since then that were not learned from because an update had enough of others."""
        self.learned_rows = 0
        """Rows added before the newest update."""
        self.held = 0
        """Rows in the buffer."""
        self.episode_steps = 0.0
        """Mean steps of the last episodes before the newest update, 0 if none had ended."""
        self._ended = self._ended_steps = 0  # episodes since then
        self._asked = settings
        self._useful_rows = 0  # held, and learned from once the next row is there
        self._on_plan = on_plan
        self._lag = lag
        self._newest: set[int] = set()
        self._before: set[int] = set()
        self._mask_columns: Places = np.zeros(0, np.int64)
        self._chains = SessionChains(settings.gamma)
        self._room = _columns(settings, 0)
        self._taken = np.empty((0, settings.numbers), np.float32)
        self._expected = Remembered.nothing(settings.memory)  # of rows that are read again

    @property
    def _held(self) -> Columns:
        return {name: column[: self.held] for name, column in self._room.items()}

    @property
    def is_full(self) -> bool:
        """True if there are enough rows for an update."""
        return self.transitions >= self.settings.rollout_rows

    @property
    def gamma(self) -> float:
        """The discount per step with which the next update learns."""
        return discount(self.settings, self.agents, self.episode_steps)

    @property
    def most(self) -> int:
        """The largest number of rows in a rollout."""
        rows = self.settings.rollout_rows
        return min(_MOST_ROLLOUTS * rows, rows + _MOST_MORE)

    @property
    def most_past(self) -> int:
        """
        The largest number of earlier rows whose images an update sees without learning from them.

        A chain has one less of them than `frames`. If there would be more than the limit, some
        chains are treated as if they began with the rollout.
        """
        settings = self.settings
        return (settings.frames - 1) * max(_LEAST_CHAINS, settings.rollout_rows // 4)

    @property
    def versions(self) -> frozenset[int]:
        """The versions whose rows can be learned from."""
        return frozenset(self._newest | self._before)

    @property
    def newest_versions(self) -> frozenset[int]:
        """The versions of the newest policy: none until it is published, several after restarts."""
        return frozenset(self._newest)

    @property
    def versions_before(self) -> frozenset[int]:
        """The versions of the policy before the newest one, if their rows can be learned from."""
        return frozenset(self._before)

    @property
    def remembered(self) -> Remembered:
        """The recurrent states, other than zeros, before rows that `restore` expects again."""
        held, expected = self._held, self._expected
        known = (held["number"] < self.learned_rows) & held["memory"].any(axis=1)
        later = (expected.numbers >= self.rows) & (expected.numbers < self.learned_rows)
        return Remembered(
            np.concatenate([held["number"][known], expected.numbers[later]]),
            np.concatenate([held["memory"][known], expected.memories[later]]),
        )

    def restore(
        self,
        versions_before: Iterable[int],
        learned_rows: int,
        agents: int,
        episode_steps: float = 0.0,
    ) -> None:
        """
        Expect rows to be added again after a restart; the first `learned_rows` were learned from.

        Rows of `versions_before` have been learned from as well, except the newest row of each
        chain. `agents` is the number of simultaneous agents, and `episode_steps` the mean length of
        episodes before these rows.
        """
        self._plan(agents)
        self.episode_steps = episode_steps
        self._chains.discount(self.gamma)
        if self._lag:
            self._before = set(versions_before)
        self.learned_rows = learned_rows

    def expect(self, remembered: Remembered) -> None:
        """Set the recurrent states before rows that `restore` expects."""
        self._expected = remembered

    def name_metrics(self, names: Sequence[str]) -> None:
        """
        Set the names of metrics by number; from names of masks follows which choices they mask.
        """
        branches = self.settings.branches
        columns = [_mask_column(name, branches) for name in names]
        self._mask_columns = np.array(columns, np.int64)

    def published(self, version: int) -> None:
        """Treat rows of this version as rows of the newest policy."""
        self._newest.add(version)

    def add(self, session: int, kind: int, columns: RowColumns) -> Added:
        """
        Add rows of one session, in push order, or none if memory is short; see `RowStore.add`.
        """
        self._reserve(self.held + len(columns))
        self._chains.note_rewards(columns.reward)
        chains = self._chains.index(session, kind)
        first, open_before = self.rows, len(chains)
        extension = chains.extend(columns, first, self._chains.reward_bounds)
        self.rows += len(columns)
        useful = self._useful(kind, columns, first)
        follows = self._follows_useful(extension.previous, first, useful, columns.version)
        kept = useful | follows
        if self.settings.frames > 1 and kind == RowKind.TRAINING:
            kept[:] = True
        places = self.held + np.cumsum(kept) - 1
        self._append(first, session, kind, columns, extension.previous, useful, kept)
        before = self._places(extension.previous[follows])
        self._held["next"][before] = places[follows]
        self.transitions += len(before)
        if kind == RowKind.TRAINING and first >= self.learned_rows:
            self._ended += len(extension.episodes.lengths)
            self._ended_steps += int(extension.episodes.lengths.sum())
        self._useful_rows += int(useful[max(0, self.learned_rows - first) :].sum())
        waiting = self._useful_rows - self.transitions  # the newest row of each agent
        if waiting > self.agents:
            self._plan(min(waiting, self._chains.count_playing(RowKind.TRAINING)))
        self._chains.count(len(chains) - open_before, lambda _: self.rows - _REMEMBERED)
        return Added(extension.discounted[extension.previous >= 0], extension.episodes)

    def cut(self, session: int) -> None:
        """End all chains of consecutive rows in a session that has lost rows."""
        self._chains.cut(session)

    def take(self) -> Rollout:
        """
        Return copies of all rows that can be learned from, at most the first `most`.

        The next call overwrites the features: new memory for them takes longer than the copies.
        """
        held, (places, following) = self._held, self._chosen()
        after = held["next"][places]
        is_end = following < 0
        following[is_end] = len(places) + np.arange(is_end.sum())
        terminal = held["state"][after] == EpisodeState.TERMINAL
        ends = after[is_end]
        seen, frames = self._frames(places, ends)
        both = np.concatenate([places, ends])
        if len(self._taken) < len(both):
            rows = max(self.most, len(both))
            self._taken = lazy_zeros((rows, self.settings.numbers), np.float32)
        features = self._taken[: len(both)]
        return Rollout(
            np.take(held["features"], both, 0, out=features, mode="clip"),  # unbuffered
            held["images"][seen],
            frames,
            held["action"][places],
            held["allowed"][places],
            held["version"][places],
            following,
            np.clip(held["reward"][after], *self._chains.reward_bounds),
            terminal & self.settings.use_terminal_masking,
            held["memory"][both],
        )

    def remember(self, memories: Floats) -> None:
        """
        Set the recurrent states before the m rows at the ends of chains, in the order of `take`.

        memories: float32, [m, memory]. Rows that stay in the buffer are among these m rows.
        """
        held, (places, following) = self._held, self._chosen()
        held["memory"][held["next"][places[following < 0]]] = memories

    def release(self) -> None:
        """
        Drop the rows that an update has used, and expect rows of the new policy.

        With `lag` 1 the newest row of each chain stays: its reward is in a row that comes later.
        """
        self.excess_rows += max(0, self.transitions - self.most)
        self._before = self._newest if self._lag else set()
        self._newest = set()
        self.learned_rows = self.rows
        self._expected = Remembered.nothing(self.settings.memory)
        self._follow_episodes()
        held = self._held
        held["is_useful"] &= (held["next"] < 0) & np.isin(held["version"], sorted(self._before))
        held["next"][:] = -1
        self._useful_rows = int(held["is_useful"].sum())
        self._keep(held["is_useful"])
        self.transitions = 0

    def audit(self) -> HeldRows:
        """Return the number and the checksums of the rows in the buffer."""
        return HeldRows.of(self._held["hash"], self._held["session"])

    def _chosen(self) -> tuple[Places, Places]:
        """
        Return the places of the rows of the next update, [n], and the row after each among them.

        The second is -1 where a chain ends: int64, [n].
        """
        after = self._held["next"]
        places = np.flatnonzero(after >= 0)[: self.most]
        numbers = np.full(len(after), -1)
        numbers[places] = np.arange(len(places))
        return places, numbers[after[places]]

    def _frames(self, places: Places, ends: Places) -> tuple[Places, Places]:
        """
        Return the rows whose images a rollout has, by their places, and `Rollout.frames`.

        places: int64, [n], of the rows of an update. ends: int64, [m], of the rows that follow.
        """
        count, others = len(places), places[:0]
        frames = [np.concatenate([places, ends])]
        for _ in range(self.settings.frames - 1):
            frames.insert(0, self._before_places(frames[0]))
        wanted = np.stack(frames, 1)
        if self.settings.frames > 1:
            past = np.setdiff1d(wanted[:count, :-1], np.append(places, -1))
            others = past[: self.most_past]
        number_of = np.full(self.held + 1, -1)  # the last one is that of no row
        seen = np.concatenate([places, others])
        number_of[seen] = np.arange(len(seen))
        result = number_of[wanted]
        result[count:, -1] = len(seen) + np.arange(len(ends))
        return np.concatenate([seen, ends]), result

    def _before_places(self, places: Places) -> Places:
        """Return the places of the rows one step earlier, -1 for none. places: of rows, or -1."""
        return self._places(np.where(places < 0, -1, self._held["previous"][places]))

    def _keep(self, wanted: Marks) -> None:
        """
        Drop all rows but these, [held], the rows next to them, and rows that are seen with others.

        These others are the rows that are kept, and the next row of each chain.
        """
        held, kept = self._held, wanted.copy()
        kept[held["next"][wanted & (held["next"] >= 0)]] = True
        if self.settings.frames > 1:
            may_go_on = ~ends_of(held["state"]) & (held["number"] >= self.rows - _REMEMBERED)
            kept |= may_go_on & ~np.isin(held["number"], held["previous"])
            before = np.flatnonzero(kept)
            for _ in range(self.settings.frames - 1):
                before = self._before_places(before)
                before = before[before >= 0]
                kept[before] = True
        moved = np.append(np.cumsum(kept) - 1, -1)
        held["next"][:] = moved[held["next"]]
        places = np.flatnonzero(kept)
        self.held = len(places)
        for column in held.values():
            column[: self.held] = column[places]

    def _plan(self, agents: int) -> None:
        """Follow the settings for so many agents, if they are more than before."""
        if agents <= self.agents:
            return
        before, is_first = self.settings, not self.agents
        self.agents, self.settings = agents, planned(self._asked, agents)
        if is_first or self.settings != before:
            self._on_plan(self.settings)

    def _follow_episodes(self) -> None:
        """Average the lengths of so many episodes as there are agents, or a hundred."""
        if self._ended:
            known = max(_EPISODES, self.agents) if self.episode_steps else 0
            total = known * self.episode_steps + self._ended_steps
            self.episode_steps = total / (known + self._ended)
            self._ended = self._ended_steps = 0
        self._chains.discount(self.gamma)

    def _useful(self, kind: int, columns: RowColumns, first: int) -> Marks:
        """
        Return the rows that can be learned from once they are linked, and count the others.

        Rows that a restarted learner reads for the second time are not counted.
        """
        if kind != RowKind.TRAINING:
            return np.zeros(len(columns), bool)
        acts = ~ends_of(columns.state)
        useful: Marks = acts & np.isin(columns.version, sorted(self.versions))
        stale = acts & ~useful & (columns.version > 0)
        self.stale_rows += int(stale[max(0, self.learned_rows - first) :].sum())
        if self.transitions >= self.most:
            self.excess_rows += int(useful.sum())
            useful[:] = False
        return useful

    def _follows_useful(
        self, previous: Places, first: int, useful: Marks, version: npt.NDArray[np.uint32]
    ) -> Marks:
        """
        Return True for each row whose previous row can be learned from: bool, [n].

        previous: int64, [n], numbers of rows. Numbers from `first` on belong to rows with these
        `useful` and `version`.
        """
        result = np.zeros(len(previous), np.bool_)
        versions = np.zeros(len(previous), np.uint32)
        added = previous >= first
        result[added] = useful[previous[added] - first]
        versions[added] = version[previous[added] - first]
        places = self._places(np.where(added, -1, previous))
        known, held = places >= 0, self._held
        result[known] = held["is_useful"][places[known]]
        versions[known] = held["version"][places[known]]
        learned = max(0, self.learned_rows - first)
        result[:learned] &= ~np.isin(versions[:learned], sorted(self._before))
        return result

    def _places(self, numbers: Places) -> Places:
        """Return the places of rows, -1 for those that are not held: int64, [n]."""
        held = self._held["number"]
        if not len(held):
            return np.full(len(numbers), -1)
        found = np.minimum(np.searchsorted(held, numbers), len(held) - 1)
        return np.where(held[found] == numbers, found, -1)

    def _append(
        self,
        first: int,
        session: int,
        kind: int,
        columns: RowColumns,
        previous: Places,
        useful: Marks,
        kept: Marks,
    ) -> None:
        numbers = first + np.flatnonzero(kept)
        if not kept.all():
            columns = columns.take(kept)
        values = {
            "number": numbers,
            "previous": previous[kept],
            "next": -1,
            "hash": row_hashes(session, kind, columns) if is_audited() else 0,
            "session": session,
            "version": columns.version,
            "reward": columns.reward,
            "features": columns.features,
            "images": columns.images,
            "action": columns.action,
            "allowed": self._allowed(columns),
            "memory": 0.0,
            "state": columns.state,
            "is_useful": useful[kept],
        }
        start, self.held = self.held, self.held + len(numbers)
        for name, column in self._held.items():
            column[start:] = values[name]
        if first < self.learned_rows:
            _, places, found = np.intersect1d(
                numbers, self._expected.numbers, assume_unique=True, return_indices=True
            )
            self._held["memory"][start + places] = self._expected.memories[found]

    def _allowed(self, columns: RowColumns) -> Marks:
        """Return the choices that are not masked: bool, [n, choices]."""
        allowed = np.ones((len(columns), sum(self.settings.branches)), bool)
        meta = columns.meta[(columns.meta["row"] != NO_ROW) & (columns.meta["value"] != 0.0)]
        meta = meta[meta["name"] < len(self._mask_columns)]
        choices = self._mask_columns[meta["name"]]
        masks = choices >= 0
        allowed[meta["row"][masks], choices[masks]] = False
        return allowed

    def _reserve(self, rows: int) -> None:
        """
        Make room for at least `rows` rows, doubling; the room stays when rows are released.
        """
        if rows <= len(self._room["number"]):
            return
        if self.settings.frames > 1:  # some were seen with later rows, and will not be again
            rows -= self.held
            self._keep(self._held["is_useful"])
            rows += self.held
            if 2 * rows <= len(self._room["number"]):
                return
        try:
            larger = _columns(self.settings, max(rows, 2 * self.held, _LEAST_ROOM))
        except MemoryError as error:
            raise MemoryError(
                f"no memory for {rows:,} rows of {self.settings.features:,} features ({error}):"
                " set a smaller rollout_rows"
            ) from error
        for name, column in self._held.items():
            larger[name][: self.held] = column
        self._room = larger


def _columns(settings: Settings, rows: int) -> Columns:
    """
    Return the columns of rows that are held, zeros.

    `number` counts the rows added, and `previous` is that of the row one step earlier, -1 for none.
    `is_useful`: it can be learned from once the next row is there. `next` is the place of that row,
    -1 before.
    """
    return {
        "number": np.zeros(rows, np.int64),
        "previous": np.zeros(rows, np.int64),
        "next": np.zeros(rows, np.int64),
        "hash": np.zeros(rows, np.uint64),
        "session": np.zeros(rows, np.uint32),
        "version": np.zeros(rows, np.uint32),
        "reward": np.zeros(rows, np.float32),
        "features": np.zeros((rows, settings.numbers), np.float32),
        "images": np.zeros((rows, settings.images), np.uint8),
        "action": np.zeros((rows, settings.actions), np.float32),
        "allowed": np.zeros((rows, sum(settings.branches)), np.bool_),
        "memory": np.zeros((rows, settings.memory), np.float32),
        "state": np.zeros(rows, np.uint8),
        "is_useful": np.zeros(rows, np.bool_),
    }


def _mask_column(name: str, branches: Sequence[int]) -> int:
    """Return the column of the choice that metadata of this name masks, -1 if there is none."""
    masked = masked_choice(name, branches)
    return -1 if masked is None else sum(branches[: masked[0]]) + masked[1]


class RolloutPace:
    """
    Admits rows until the rollout is full, and then none until the next policy is published.

    The due updates are the updates of all epochs.
    """

    def __init__(self, buffer: RolloutBuffer) -> None:
        self.update_seconds = 0.0
        """Seconds of one update, a moving average; 0 before the first."""
        self.awaits_version = True
        """True from an update, or the start, until the newest policy is published."""
        self._buffer = buffer
        self._rows_before = 0  # rows of the run that this process does not read

    @property
    def holds(self) -> bool:
        """True if the rollout is full, or the policy that is to act next is not published yet."""
        return self._buffer.is_full or self.awaits_version

    def begin(self, rows: int, updates: int) -> None:
        """
        Start from the number of rows that a new learner process finds.

        `rows` is 0 if the checkpoint is from another run: then no row of this run has been learned
        from.
        """
        del updates
        self._buffer.learned_rows = min(self._buffer.learned_rows, rows)
        self._rows_before = max(0, rows - self._buffer.rows)

    def admitted(self, updates: int) -> int:
        """Return the number of rows that hosts may have sent in all. `updates` does not matter."""
        del updates
        rows = self._rows_before + self._buffer.rows
        if self.holds:
            return rows
        lacking = self._buffer.settings.rollout_rows - self._buffer.transitions
        return rows + lacking + LEAST_AHEAD

    def due(self, rows: int, updates: int) -> int:
        """Return the number of updates for a full rollout, 0 before it is full."""
        del rows, updates
        if not self._buffer.is_full:
            return 0
        settings, buffer = self._buffer.settings, self._buffer
        rollout = min(buffer.transitions, buffer.most)
        per_epoch = count_minibatches(rollout, settings.batch_size, steps=sequence_steps(settings))
        return settings.epochs * per_epoch

    def turn(self, due: int) -> int:
        """Return `due`: all epochs of a rollout are one call."""
        return due

    def record(self, updates: int, seconds: float) -> None:
        """Record that `updates` updates took `seconds`."""
        each = seconds / updates
        average = self.update_seconds
        self.update_seconds = 0.8 * average + 0.2 * each if average else each
