"""Models that the host runs as WebAssembly kernels, row by row."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from arkml.batches import Floats, chunks
from arkml.policies.blocks import rows_of
from arkml.policies.kernel.rendering import Kernel
from arkml.policies.load_time import LoadTime
from arkml.policies.model import ALIKE, Call
from arkml.policies.noise import Words
from arkml.policies.ports import Port
from arkml.policies.run_limit import RunLimit
from arkml.policies.shared_run import SharedRun
from arkml.policies.vetting import Vetted

_CALL_SECONDS = 2e-3  # of one call, in which no other thread of Python runs
_QUICK = 0.025  # seconds of a batch that runs without a watch
_TRIALS = 3
_MODULE_BYTES = 64 << 10


Column = tuple[Floats, int]
"""Rows, float32, [n, *shape], and where a module has one of them."""


class LoadedModule(Protocol):
    """A kernel that was compiled for this machine. Any thread may use it."""

    def runs(self, inputs: Sequence[Column], outputs: Sequence[Column]) -> Callable[[], None]:
        """Return a function that runs the kernel on all rows, and may raise Unavailable."""

    def draw(self, streams: Words, steps: Words, out: Column, *, is_pink: bool) -> None:
        """Fill a column with the noise of agents, given their streams and steps: uint64, [n]."""


LoadModule = Callable[[bytes], LoadedModule]
"""Compiles a module for this machine."""


class _Unstopped:
    """The options of a run that ends by itself after each call."""

    terminate = False


class RowModel:
    """
    A `Model` that is compiled to WebAssembly, so that its answers are equal on every machine.

    `seconds` limits the time of a batch. Raises ModelRejected for a graph that cannot be compiled,
    and as `LoadTime.late`.
    """

    def __init__(
        self,
        vetted: Vetted,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        load: LoadModule,
        time_left: LoadTime,
    ) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self._kernel = Kernel(vetted, self.inputs, self.outputs)
        time_left.require()
        binary = self._kernel.binary({})
        self.session_bytes: int = _MODULE_BYTES + 2 * len(binary) + self._kernel.size
        self._module = load(binary)
        self._seconds = time_left.seconds
        time_left.require()
        self._row_seconds = self._measured()
        time_left.require()

    def prepare(
        self,
        count: int,
        feeds: Mapping[str, Floats],
        fetches: Mapping[str, Floats],
        limit: RunLimit,
    ) -> Sequence[Call]:
        """
        Return functions that run the model; feeds, fetches: float32, [count, *shape], by port name.
        """
        together = int(min(ALIKE, max(1.0, _CALL_SECONDS / self._row_seconds)))
        calls = [self._call(part, feeds, fetches) for part in chunks(count, together)]
        if count * self._row_seconds <= _QUICK:
            return calls
        shared = SharedRun(calls, limit.helpers, 1, (feeds, fetches))
        return [partial(limit.run, shared, _Unstopped(), self._seconds)]

    def fill_noise(
        self, port: Port, out: Floats, streams: Words, steps: Words, *, is_pink: bool
    ) -> None:
        """
        Fill an input with noise, as in the protocol `MakesNoise`, with equal bits on every machine.
        """
        column = out, self._kernel.inputs[port.name]
        self._module.draw(streams, steps, column, is_pink=is_pink)

    def _call(
        self, part: slice, feeds: Mapping[str, Floats], fetches: Mapping[str, Floats]
    ) -> Call:
        kernel = self._kernel
        inputs = [
            (np.ascontiguousarray(rows_of(feeds[port.name], part)), kernel.inputs[port.name])
            for port in self.inputs
        ]
        outputs = [
            (fetches[port.name][part], kernel.outputs[port.name])
            for port in self.outputs
            if port.name in fetches
        ]
        return self._module.runs(inputs, outputs)

    def _measured(self) -> float:
        """Return the seconds of a row, the least of some."""
        feeds = {port.name: np.zeros((1, *port.shape), np.float32) for port in self.inputs}
        call = self._call(slice(0, 1), feeds, {})
        times = []
        for _ in range(_TRIALS):
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
        return max(min(times), 1e-7)
