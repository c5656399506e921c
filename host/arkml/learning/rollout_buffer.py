"""The rollout buffer: rows of the newest policy versions, linked, until updates have used them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.batches import MASK, Floats
from arkml.hive.protocol.audit import checksum, row_hashes
from arkml.hive.protocol.rows import NO_ROW, RowColumns, RowKind
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Added, HeldRows
from arkml.learning.trajectories import TrajectoryIndex

Marks = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

MOST_ROLLOUTS = 2
"""Rows that an update takes at most, as a multiple of `rollout_rows`."""

_LEAST_ROOM = 1_024  # rows
_REMEMBERED = 1_000_000  # rows after which an agent that sends none is forgotten
_FORGET_FROM = 4_096


class Rollout(NamedTuple):
    """
    The n rows of an update, and m rows that follow on their chains without being among them.

    features: float32, [n + m, F]. actions: float32, [n, A]. allowed: bool, [n, choices], of the
    branches side by side. versions: uint32, [n], of the policies that acted. following: int64, [n],
    the place of the next row of the agent, n or more where the chain ends there. rewards: float32,
    [n], that led to the next row. dones: bool, [n], True where nothing follows the next row.
    """

    features: Floats
    actions: Floats
    allowed: Marks
    versions: npt.NDArray[np.uint32]
    following: Places
    rewards: Floats
    dones: Marks


class _Columns(NamedTuple):
    """
    Rows held, in the order of their numbers.

    `is_useful`: it can be learned from once the next row is there. `next`: its place, -1 before.
    """

    number: Places
    features: Floats
    action: Floats
    allowed: Marks
    reward: Floats
    state: npt.NDArray[np.uint8]
    version: npt.NDArray[np.uint32]
    is_useful: Marks
    session: npt.NDArray[np.uint32]
    hashes: npt.NDArray[np.uint64]
    next: Places


class RolloutBuffer:
    """
    Holds the rows that the next updates learn from, and those that follow on them.

    A row can be learned from when the row one step later is there, with its reward. With `lag` 1
    rows of the policy before the newest one are learned from, too, with 0 they are not. Rows of
    older policies are counted, and not held unless they end a chain.
    """

    def __init__(self, settings: Settings, *, lag: int = 1) -> None:
        self.rows = 0
        """Rows added, including those that are not held any more."""
        self.transitions = 0
        """Rows held that can be learned from."""
        self.stale_rows = 0
        """Rows that came too late to be learned from: their policies are too old."""
        self.excess_rows = 0
        """Rows that were not learned from because an update had enough without them."""
        self.held = 0
        """Rows in the buffer."""
        self._settings = settings
        self._lag = lag
        self._newest: set[int] = set()
        self._before: set[int] = set()
        self._mask_columns: Places = np.zeros(0, np.int64)
        self._chains: dict[tuple[int, int], TrajectoryIndex] = {}
        self._forget_at = _FORGET_FROM
        self._columns = self._empty(0)

    @property
    def is_full(self) -> bool:
        """True if there are rows enough for an update."""
        return self.transitions >= self._settings.rollout_rows

    @property
    def most(self) -> int:
        """Largest number of rows in a rollout."""
        return MOST_ROLLOUTS * self._settings.rollout_rows

    @property
    def versions(self) -> frozenset[int]:
        """The versions whose rows can be learned from."""
        return frozenset(self._newest | self._before)

    @property
    def newest_versions(self) -> frozenset[int]:
        """The versions of the newest policy: none before it is published, more after restarts."""
        return frozenset(self._newest)

    def name_metrics(self, names: Sequence[str]) -> None:
        """Take the names of metrics, by number; those of masks say which choices they mask."""
        branches = self._settings.branches
        columns = [_mask_column(name, branches) for name in names]
        self._mask_columns = np.array(columns, np.int64)

    def published(self, version: int) -> None:
        """Take rows of this version as rows of the newest policy."""
        self._newest.add(version)

    def add(self, session: int, kind: int, columns: RowColumns) -> Added:
        """
        Add rows of one session, in push order.

        Raises MemoryError if there is no room for them, and then adds none.
        """
        self._reserve(self.held + len(columns))
        key = (session, kind)
        chains = self._chains.setdefault(key, TrajectoryIndex(self._settings.gamma))
        first = self.rows
        extension = chains.extend(columns, first)
        self.rows += len(columns)
        useful = self._useful(kind, columns)
        follows = self._follows_useful(extension.previous, first, useful)
        self._append(first, session, kind, columns, useful, useful | follows)
        before = self._places(extension.previous[follows])
        self._columns.next[before] = self._places(first + np.flatnonzero(follows))
        self.transitions += len(before)
        if sum(map(len, self._chains.values())) > self._forget_at:
            self._forget()
        return Added(extension.discounted[extension.previous >= 0], extension.episodes)

    def cut(self, session: int) -> None:
        """End all chains of a session, of which rows were lost."""
        for (owner, _), chains in self._chains.items():
            if owner == session:
                chains.clear()

    def take(self) -> Rollout:
        """Return copies of the rows to learn from: all that can be, the first `most` if more."""
        columns = self._columns
        rows = np.flatnonzero(columns.next[: self.held] >= 0)[: self.most]
        after = columns.next[rows]
        places = np.full(self.held, -1)
        places[rows] = np.arange(len(rows))
        following = places[after]
        is_end = following < 0
        following[is_end] = len(rows) + np.arange(is_end.sum())
        terminal = columns.state[after] == EpisodeState.TERMINAL
        return Rollout(
            columns.features[np.concatenate([rows, after[is_end]])],
            columns.action[rows],
            columns.allowed[rows],
            columns.version[rows],
            following,
            columns.reward[after],
            terminal & self._settings.use_terminal_masking,
        )

    def release(self) -> None:
        """
        Drop the rows that an update has used, and expect those of its policy.

        With `lag` 1 the newest row of each chain stays: its reward is in a row that comes later.
        """
        self.excess_rows += max(0, self.transitions - self.most)
        self._before = self._newest if self._lag else set()
        self._newest = set()
        columns = _Columns(*(column[: self.held] for column in self._columns))
        kept = columns.is_useful & (columns.next < 0)
        kept &= np.isin(columns.version, sorted(self._before))
        self._columns = _Columns(*(column[kept] for column in columns))
        self.held = len(self._columns.next)
        self.transitions = 0

    def audit(self) -> HeldRows:
        """Return counts and checksums of the rows held."""
        hashes, owners = self._columns.hashes[: self.held], self._columns.session[: self.held]
        sessions = {
            int(owner): (int((owners == owner).sum()), checksum(hashes[owners == owner]))
            for owner in np.unique(owners)
        }
        return HeldRows(self.held, checksum(hashes), sessions)

    def _useful(self, kind: int, columns: RowColumns) -> Marks:
        """Return the rows that can be learned from, once they are linked, and count others."""
        if kind != RowKind.TRAINING:
            return np.zeros(len(columns), bool)
        state = columns.state
        acts = (state != EpisodeState.TERMINAL) & (state != EpisodeState.INTERRUPTED)
        useful = acts & np.isin(columns.version, sorted(self.versions))
        self.stale_rows += int((acts & ~useful & (columns.version > 0)).sum())
        if self.transitions >= self.most:
            self.excess_rows += int(useful.sum())
            useful[:] = False
        return useful

    def _follows_useful(self, previous: Places, first: int, useful: Marks) -> Marks:
        """
        Return True for each row whose previous one can be learned from: bool, [n].

        previous: int64, [n], numbers; those from `first` on are of rows with these `useful`.
        """
        result = np.zeros(len(previous), bool)
        added = previous >= first
        result[added] = useful[previous[added] - first]
        known = np.flatnonzero(~added & np.isin(previous, self._columns.number[: self.held]))
        result[known] = self._columns.is_useful[self._places(previous[known])]
        return result

    def _places(self, numbers: Places) -> Places:
        return np.searchsorted(self._columns.number[: self.held], numbers)

    def _append(
        self,
        first: int,
        session: int,
        kind: int,
        columns: RowColumns,
        useful: Marks,
        kept: Marks,
    ) -> None:
        numbers = first + np.flatnonzero(kept)
        columns = columns.take(kept)
        hashes = row_hashes(session, kind, columns)
        values = (
            numbers, columns.features, columns.action, self._allowed(columns), columns.reward,
            columns.state, columns.version, useful[kept], session, hashes, -1,
        )  # fmt: skip
        added = slice(self.held, self.held + len(numbers))
        for column, value in zip(self._columns, values, strict=True):
            column[added] = value
        self.held = added.stop

    def _allowed(self, columns: RowColumns) -> Marks:
        """Return the choices that are not masked: bool, [n, choices]."""
        allowed = np.ones((len(columns), sum(self._settings.branches)), bool)
        meta = columns.meta[(columns.meta["row"] != NO_ROW) & (columns.meta["value"] != 0.0)]
        meta = meta[meta["name"] < len(self._mask_columns)]
        choices = self._mask_columns[meta["name"]]
        masks = choices >= 0
        allowed[meta["row"][masks], choices[masks]] = False
        return allowed

    def _reserve(self, rows: int) -> None:
        """Make room for at least `rows` rows, doubling: each row is copied once on average."""
        room = len(self._columns.next)
        if rows <= room:
            return
        try:
            columns = self._empty(max(rows, 2 * room, _LEAST_ROOM))
        except MemoryError as error:
            raise MemoryError(
                f"no memory for {rows:,} rows of {self._settings.features:,} features ({error}):"
                " set a smaller rollout_rows"
            ) from error
        for larger, column in zip(columns, self._columns, strict=True):
            larger[: self.held] = column[: self.held]
        self._columns = columns

    def _empty(self, rows: int) -> _Columns:
        settings = self._settings
        return _Columns(
            np.zeros(rows, np.int64),
            np.zeros((rows, settings.features), np.float32),
            np.zeros((rows, settings.actions), np.float32),
            np.zeros((rows, sum(settings.branches)), bool),
            np.zeros(rows, np.float32),
            np.zeros(rows, np.uint8),
            np.zeros(rows, np.uint32),
            np.zeros(rows, bool),
            np.zeros(rows, np.uint32),
            np.zeros(rows, np.uint64),
            np.zeros(rows, np.int64),
        )

    def _forget(self) -> None:
        """Drop the chains of agents that never ended and have sent no rows for long."""
        for chains in self._chains.values():
            chains.forget(self.rows - _REMEMBERED)
        remaining = sum(map(len, self._chains.values()))
        self._forget_at = max(_FORGET_FROM, 2 * remaining)


def _mask_column(name: str, branches: Sequence[int]) -> int:
    """Return the column of the choice that metadata of this name masks, -1 if there is none."""
    if not name.startswith(MASK):
        return -1
    branch, _, choice = name[len(MASK) :].partition("/")
    if not (branch.isdecimal() and choice.isdecimal()) or int(branch) >= len(branches):
        return -1
    return sum(branches[: int(branch)]) + int(choice) if int(choice) < branches[int(branch)] else -1
