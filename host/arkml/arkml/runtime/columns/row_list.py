"""
A list of the rows of a submit, made by the shim if they continue the rows of the previous one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.arrays import Marks
from arkml.batches import Floats
from arkml.runtime.columns.arena import Arena
from arkml.runtime.shim import control_block as at

Numbers = npt.NDArray[np.uint32]

_U32 = 0xFFFF_FFFF
_WORD = 4  # bytes
_NUMBERS = 3  # columns of words: rewards, begun, over
_MARKS = 3  # columns of bytes: started, terminated, truncated


class Rules(NamedTuple):
    """
    What each transition of an agent means; each field is a set in which bit k is transition k.

    The number of a transition is the row's state, plus 4 if no agent is live under its id: 7, for
    example, is the state Initial (3) of a new agent.

    Attributes:
        started: Transitions that report the start of an episode.
        terminated: Transitions that report the termination of an episode.
        truncated: Transitions that report the truncation of an episode.
        over: Transitions after which no agent is live.
        unlisted: Transitions that the shim cannot list; a submit with one is not listed at all.

    """

    started: int
    terminated: int
    truncated: int
    over: int
    unlisted: int


class Listed(NamedTuple):
    """
    The n listed rows of a submit, each of the agent with this row index before, or of a new agent.

    The arrays are views, valid until the guest is resumed.

    Attributes:
        rewards: float32, [n].
        started: bool, [n], True for rows that report the start of an episode.
        terminated: bool, [n], True for rows that report the termination of an episode.
        truncated: bool, [n], True for rows that report the truncation of an episode.
        begun: uint32, [m], the indices of rows that start an episode.
        over: uint32, [m], the indices of rows after which their agent is not live.
        highest: The highest agent id so far.
        is_rewarded: False if no row that starts an episode has a reward.

    """

    rewards: Floats
    started: Marks
    terminated: Marks
    truncated: Marks
    begun: Numbers
    over: Numbers
    highest: int
    is_rewarded: bool


class RowList:
    """A block of column memory in which the shim lists up to `capacity` rows of one session."""

    def __init__(self, arena: Arena, capacity: int, rules: Rules) -> None:
        self._arena = arena
        self._words = arena.words
        self.size: int = list_bytes(capacity)
        self.offset: int = arena.allocate(self.size)
        self.highest: int = (self.offset + at.LIST_HIGHEST) >> 3
        """The index, in the arena's numbers, of the id that those of new agents must exceed."""
        self._start = self.offset >> 2
        rewards, begun, over, marks = at.list_columns(capacity)
        self._rewards = arena.array(self.offset + rewards, capacity, np.float32)
        self._begun = arena.array(self.offset + begun, capacity, np.uint32)
        self._over = arena.array(self.offset + over, capacity, np.uint32)
        reports = arena.array(self.offset + marks, _MARKS * capacity, np.uint8)
        self._reports: Marks = reports.view(np.bool_).reshape(_MARKS, capacity)
        self._count = capacity  # of the rows that `_shown` has
        self._shown: tuple[Floats, Marks, Marks, Marks] = self._rewards, *self._reports
        for field, rule in zip(at.LIST_RULES, rules, strict=True):
            self._words[self._start + (field >> 2)] = rule

    def rows(self, count: int, submits: int) -> Listed | None:
        """
        Return the listed rows of a submit, or None if they are not listed.

        `count` is the number of rows, `submits` the number of submits answered before.
        """
        words, start = self._words, self._start
        if words[start + (at.LISTED >> 2)] != submits + 1 & _U32:
            return None
        if count != self._count:
            self._count = count
            self._shown = self._rewards[:count], *self._reports[:, :count]
        return Listed(
            *self._shown,
            self._begun[: words[start + (at.LIST_BEGUN >> 2)]],
            self._over[: words[start + (at.LIST_OVER >> 2)]],
            self._arena.numbers[self.highest],
            words[start + (at.LIST_REWARDED >> 2)] != 0,
        )

    def free(self) -> None:
        """Free the block of column memory."""
        self._arena.free(self.offset, self.size)


def list_bytes(capacity: int) -> int:
    """Return the bytes of a list of `capacity` rows."""
    return at.LIST_HEADER + (_NUMBERS * _WORD + _MARKS) * capacity
