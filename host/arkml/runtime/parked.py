"""Fibers of many guests that wait in submits, gone on with together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.runtime import bindings
from arkml.runtime.columns.arena import Arena
from arkml.runtime.exported_function import ExportedFunction
from arkml.runtime.fiber import Fiber
from arkml.runtime.shim import control as at
from arkml.runtime.shim.control import Reason

_poll = bindings.poll

Positions = npt.NDArray[np.intp]
Frames = npt.NDArray[np.uint32]


class Parked:
    """
    Fibers in one call each; all parked, and in one call_guard while they are gone on with.

    A guest is named by its position; there may be none. Per guest and step there is little more
    than the C calls: no budget is looked at, a guest that uses up a turn is suspended as any other.
    """

    def __init__(
        self, arena: Arena, fibers: Sequence[Fiber | None], controls: Sequence[int]
    ) -> None:
        self._fibers: list[Any] = list(fibers)  # who is None is never gone on with
        self._stores: list[Any] = [None if fiber is None else fiber.store for fiber in fibers]
        self._words = arena.word_array
        places = np.array(controls, np.intp)
        self._reasons = (places + at.REASON) >> 2
        self._answers = (places + at.ANSWER) >> 2
        self._records = (places + at.RECORD) >> 2
        self._frames = (places + at.FRAMES) >> 2
        self._last_frames = (places + at.LAST_FRAME) >> 2

    def answer(self, positions: Positions) -> None:
        """Let the submits of these guests succeed."""
        self._words[self._answers[positions]] = 1

    def go_on(self, positions: Sequence[int]) -> tuple[list[int], list[int]]:
        """Run these guests; those whose call ended, and those that are suspended again."""
        stores = self._stores
        ended: list[int] = []
        suspended: list[int] = []
        for position in positions:
            (ended if _poll(stores[position].future) else suspended).append(position)
        return ended, suspended

    def call_again(
        self,
        positions: Sequence[int],
        last: Sequence[ExportedFunction | None],
        next_: Sequence[ExportedFunction | None],
    ) -> list[int]:
        """
        Begin the calls `next_`, which take nothing, of guests whose call `last` has ended.

        Both are indexed by position. Returns those that were called; not called are those without
        an entry, and those whose last call failed or left something of its imports behind.
        """
        fibers, stores, call = self._fibers, self._stores, bindings.call_async
        called: list[int] = []
        for position in positions:
            fiber, before, entry = fibers[position], last[position], next_[position]
            if before is None or entry is None or fiber.imports or before.failed():
                continue
            stores[position].drop_call()
            stores[position].future = call(*entry.raw)
            called.append(position)
        return called

    def allow(self, positions: Positions, frames: int) -> Frames:
        """
        Let the calls of these guests that repeat a frame end after so many frames more.

        Returns how many they have ended, u32, [n].
        """
        ended = self.frames(positions)
        self._words[self._last_frames[positions]] = ended + np.uint32(frames)
        return ended

    def frames(self, positions: Positions) -> Frames:
        """How many frames these guests have ended in such calls, u32, [n]; it wraps around."""
        found: Frames = self._words[self._frames[positions]]
        return found

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
