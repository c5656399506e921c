"""Fibers of many guests that wait in submits, gone on with together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.runtime import bindings
from arkml.runtime.columns.arena import Arena
from arkml.runtime.entry import Entry
from arkml.runtime.fiber import Fiber
from arkml.runtime.shim import control as at
from arkml.runtime.shim.control import Reason

_poll = bindings.poll

Positions = npt.NDArray[np.intp]


class Parked:
    """
    Fibers in one call each; all parked, and in one flight while they are gone on with.

    A guest is named by its position; there may be none. Per guest and step there is little more
    than the C calls: no budget is looked at, a guest that uses up a turn is suspended as any other.
    """

    def __init__(
        self, arena: Arena, fibers: Sequence[Fiber | None], controls: Sequence[int]
    ) -> None:
        self._fibers: list[Any] = list(fibers)  # who is None is never gone on with
        self._words = arena.word_array
        places = np.array(controls, np.intp)
        self._reasons = (places + at.REASON) >> 2
        self._answers = (places + at.ANSWER) >> 2
        self._records = (places + at.RECORD) >> 2

    def answer(self, positions: Positions) -> None:
        """Let the submits of these guests succeed."""
        self._words[self._answers[positions]] = 1

    def go_on(self, positions: Sequence[int]) -> tuple[list[int], list[int]]:
        """Run these guests; those whose call ended, and those that are suspended again."""
        fibers = self._fibers
        ended: list[int] = []
        suspended: list[int] = []
        for position in positions:
            (ended if _poll(fibers[position].future) else suspended).append(position)
        return ended, suspended

    def call_again(
        self, positions: Sequence[int], entries: Sequence[Entry | None]
    ) -> tuple[list[int], list[int]]:
        """
        Begin the calls, which take nothing, of guests whose last one has ended.

        `entries` is indexed by position. Returns those that were called, and those that were not:
        without an entry, after a call that failed, or that left something of its imports behind.
        """
        fibers, call, delete = self._fibers, bindings.call_async, bindings.delete_future
        called: list[int] = []
        refused: list[int] = []
        for position in positions:
            fiber, entry = fibers[position], entries[position]
            if entry is None or fiber.imports or entry.failed():
                refused.append(position)
                continue
            delete(fiber.future)
            fiber.future = 0  # should the next call fail to begin
            fiber.future = call(*entry.raw)
            called.append(position)
        return called, refused

    def tired(self, positions: Positions) -> npt.NDArray[np.bool_]:
        """Which of these guests only had their turn taken away, bool, [n]."""
        found: npt.NDArray[np.bool_] = self._words[self._reasons[positions]] == Reason.RUNNING
        return found

    def submits(self, positions: Positions) -> npt.NDArray[np.bool_]:
        """Which of these guests are suspended in a submit of finite features, bool, [n]."""
        found: npt.NDArray[np.bool_] = self._words[self._reasons[positions]] == Reason.SUBMIT
        return found

    def records(self, positions: Positions) -> npt.NDArray[np.int_]:
        """Which of its queues each of these guests submitted last, [n]."""
        found: npt.NDArray[np.int_] = self._words[self._records[positions]]
        return found
