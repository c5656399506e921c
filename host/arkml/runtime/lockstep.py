"""One call into many guests of one module, advanced together."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.runtime import bindings
from arkml.runtime.columns.arena import Arena
from arkml.runtime.deadline import ALERT
from arkml.runtime.exported_function import ExportedFunction, Number
from arkml.runtime.shim import control as at
from arkml.runtime.shim.control import Reason

_clock = time.perf_counter
_poll = bindings.poll
_NUMBERS = {"i32": np.int32, "i64": np.int64, "f32": np.float32, "f64": np.float64}


class Turn(NamedTuple):
    """Positions of the guests whose call ended, who submit, and who want something else."""

    ended: list[int]
    submitted: list[int]
    other: list[int]


class Lockstep:
    """
    The same exported function of many guests, called at once.

    A guest is named by its position. Arguments are shared, results and errors lie side by side;
    per guest and step there is little more than the C calls.
    """

    def __init__(
        self, arena: Arena, entries: Sequence[ExportedFunction], controls: Sequence[int]
    ) -> None:
        self._entry = entries[0]
        self._results_size = bindings.VALUE_SIZE * max(1, len(self._entry.results))
        count = len(entries)
        self._results = (ctypes.c_uint8 * (self._results_size * count))()
        self._errors = np.zeros((count, 2), np.uint64)
        results = ctypes.addressof(self._results)
        errors = self._errors.ctypes.data
        self._raw = [
            entry.sharing(self._entry, results + i * self._results_size, errors + 16 * i)
            for i, entry in enumerate(entries)
        ]
        self._words = arena.word_array
        self._reasons = (np.array(controls, np.intp) + at.REASON) >> 2
        self.futures: list[bindings.Address] = []
        self.used: list[float] = []
        """Seconds that each guest ran in this call."""
        self.alert = 0.0

    def start(self, arguments: Sequence[Number], budget: float | None) -> None:
        """Begin the calls; nothing runs before `advance`. Raises UsageError before anything."""
        if arguments or self._entry.params:
            self._entry.set_arguments(arguments)
        call = bindings.call_async
        self.futures = [call(*raw) for raw in self._raw]
        self.used = [0.0] * len(self.futures)
        self.alert = float("inf") if budget is None else budget - ALERT

    def advance(self, positions: Sequence[int]) -> Turn:
        """Run each of these guests until its call ends or it is suspended."""
        futures, used = self.futures, self.used
        ended: list[int] = []
        alive: list[int] = []
        then = _clock()
        for position in positions:
            if _poll(futures[position]):
                ended.append(position)
            else:
                alive.append(position)
            now = _clock()
            used[position] += now - then
            then = now
        reasons = self._words[self._reasons[alive]]
        submits = reasons == Reason.SUBMIT
        if max(used) <= self.alert and submits.all():
            return Turn(ended, alive, [])
        submitted: list[int] = []
        other: list[int] = []
        for position, submits_now in zip(alive, submits.tolist(), strict=True):
            tired = used[position] > self.alert
            (submitted if submits_now and not tired else other).append(position)
        return Turn(ended, submitted, other)

    def forget(self, positions: Sequence[int]) -> list[int]:
        """Give up the futures of calls that ended; returns the positions of those that failed."""
        delete, futures = bindings.delete_future, self.futures
        for position in positions:
            delete(futures[position])
            futures[position] = 0
        if not self._errors.any():
            return []
        return [position for position in positions if self._errors[position].any()]

    def take_errors(self, position: int) -> tuple[bindings.Address, bindings.Address]:
        """Addresses of the trap and the error that a call left; forgets them."""
        trap, error = self._errors[position].tolist()
        self._errors[position] = 0
        return trap, error

    def results(self) -> list[Any]:
        """What each call returned; only for those that ended well does it mean anything."""
        kinds = self._entry.results
        if not kinds:
            return [None] * len(self._raw)
        columns = [self._column(index, kind) for index, kind in enumerate(kinds)]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def _column(self, index: int, kind: str) -> list[Number]:
        size = self._results_size
        cells: npt.NDArray[np.uint8] = np.ctypeslib.as_array(self._results).reshape(-1, size)
        start = index * bindings.VALUE_SIZE + bindings.VALUE_OFFSET
        number = np.dtype(_NUMBERS[kind])
        column: list[Number] = (
            np.ascontiguousarray(cells[:, start : start + number.itemsize])
            .view(number)[:, 0]
            .tolist()
        )
        return column
