"""ONNX models, run by onnxruntime on the caller's arrays without copies."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from arkml.batches import Floats, chunks
from arkml.errors import ModelRejected, Unavailable
from arkml.limits import Limits
from arkml.policies.blocks import BlockModel, rows_of
from arkml.policies.model import ALIKE, Call
from arkml.policies.ort import bindings, deadline, open_session, reason, run_options
from arkml.policies.rebatch import fixed_batch, is_rowwise, with_free_batch
from arkml.policies.signature import Port
from arkml.policies.vetting import Vetted, examine

log = logging.getLogger(__name__)

CHUNK = ALIKE
"""Rows of one run. With more it leaves the processor's cache and is up to a fifth slower."""

_CHUNK_BYTES = 128 << 20
_TRIAL_ROWS = 3
_TRIAL_RUNS = 5
_TRIAL_FLOATS = 1 << 24
_QUICK = 0.1
"""Seconds; batches that should take less run without a timer."""


@dataclass(frozen=True, slots=True)
class TrialRun:
    """The results of first runs: the outputs with a row for each input row, and the speed."""

    outputs: tuple[Port, ...]
    seconds_per_row: float


class OnnxModel:
    """
    A raw onnxruntime session with its ports. Any thread may run it.

    `block` is the only batch size that it takes, or None. `chunk` is the largest number of rows of
    one run, `seconds` the time that a batch may take.
    """

    def __init__(
        self, session: Any, trial: TrialRun, *, block: int | None, chunk: int, seconds: float
    ) -> None:
        self.inputs = _input_ports(session)
        self.outputs = trial.outputs
        self.block = block
        self._session = session
        self._chunk = chunk
        self._seconds = seconds
        self._options = run_options()
        self._unguarded_rows = int(_QUICK / trial.seconds_per_row)

    def prepare(
        self, count: int, feeds: Mapping[str, Floats], fetches: Mapping[str, Floats]
    ) -> Sequence[Call]:
        """Return calls that run the model; feeds, fetches: float32, [count, *shape], by name."""
        if count <= self._unguarded_rows:
            return self._calls(count, feeds, fetches, self._options)
        # Separate options: this run may be cancelled, others must not be.
        options = run_options()
        calls = self._calls(count, feeds, fetches, options)
        return [partial(run_guarded, calls, options, self._seconds)]

    def _calls(
        self, count: int, feeds: Mapping[str, Floats], fetches: Mapping[str, Floats], options: Any
    ) -> Sequence[Call]:
        if self.block is None:
            parts = chunks(count, self._chunk)
            return [self._bound(part, feeds, fetches, options) for part in parts]
        names = [port.name for port in self.outputs]

        def run(inputs: Mapping[str, Floats]) -> Sequence[Floats]:
            results: Sequence[Floats] = self._session.run(names, inputs, options)
            return results

        return BlockModel(self.inputs, self.outputs, run, self.block).prepare(count, feeds, fetches)

    def _bound(
        self, part: slice, feeds: Mapping[str, Floats], fetches: Mapping[str, Floats], options: Any
    ) -> Call:
        """Return one run with all arrays bound by address, without any work of Python."""
        raw = bindings()
        device = raw.OrtDevice(raw.OrtDevice.cpu(), raw.OrtDevice.default_memory(), 0)
        binding = raw.SessionIOBinding(self._session)
        for port in self.inputs:
            array = _checked(port, rows_of(feeds[port.name], part))
            binding.bind_input(port.name, device, np.float32, array.shape, array.ctypes.data)
        for port in self.outputs:
            if port.name in fetches:
                array = _checked(port, fetches[port.name])[part]
                binding.bind_output(port.name, device, np.float32, array.shape, array.ctypes.data)
        return partial(self._session.run_with_iobinding, binding, options)


def load_onnx(data: bytes, limits: Limits, *, seconds: float) -> OnnxModel:
    """
    Vet a model, load it and run it on a few rows.

    Raises ModelRejected, also if that takes longer than `seconds`.
    """
    until = time.perf_counter() + seconds
    vetted = examine(data, limits)
    block = fixed_batch(vetted.model)
    if block is not None and is_rowwise(vetted.model):
        free = with_free_batch(vetted.model).SerializeToString()
        try:
            return _load(examine(free, limits), None, seconds, until)
        except ModelRejected as error:
            log.debug("the model keeps its batch size of %d: %s", block, error)
    return _load(vetted, block, seconds, until)


def run_guarded(calls: Sequence[Call], options: Any, seconds: float) -> None:
    """Make calls that run with `options`. Raises Unavailable if they take longer than `seconds`."""
    options.terminate = False

    def cancel() -> None:
        options.terminate = True

    with deadline(seconds, cancel) as is_late:
        try:
            for call in calls:
                call()
        except Exception as error:
            if is_late():
                raise Unavailable(f"the model ran longer than {seconds:.3g} s") from error
            raise


def _load(vetted: Vetted, block: int | None, seconds: float, until: float) -> OnnxModel:
    # The vetted model, not its bytes: another parser might read those differently.
    session = open_session(vetted.model.SerializeToString(), _left(until))
    chunk = max(1, min(CHUNK, _CHUNK_BYTES // max(1, vetted.cost.row_bytes)))
    try:
        trial = _try_out(session, block or _TRIAL_ROWS, _left(until))
    except ModelRejected:
        if block is not None or not _left(until):
            raise
        # Some models claim any batch size but have shapes that fit one row only.
        block = 1
        trial = _try_out(session, block, _left(until))
    return OnnxModel(session, trial, block=block, chunk=chunk, seconds=seconds)


def _left(until: float) -> float:
    return max(0.0, until - time.perf_counter())


def _try_out(session: Any, rows: int, seconds: float) -> TrialRun:
    names = [meta.name for meta in session.outputs_meta if meta.type == "tensor(float)"]
    ports = _input_ports(session)
    if rows * sum(port.width for port in ports) > _TRIAL_FLOATS:
        raise ModelRejected(f"the inputs of the model are too large for {rows} rows")
    feeds = {port.name: np.zeros((rows, *port.shape), np.float32) for port in ports}
    options = run_options()
    results: list[Floats] = []
    times: list[float] = []

    def run() -> None:
        # The first run is slower than the others.
        while names and len(times) < _TRIAL_RUNS and sum(times) < _QUICK:
            started = time.perf_counter()
            results[:] = session.run(names, feeds, options)
            times.append(time.perf_counter() - started)

    try:
        run_guarded([run], options, seconds)
    except Exception as error:
        raise ModelRejected(f"the model fails on {rows} rows: {reason(error)}") from error
    outputs = tuple(
        Port(name, result.shape[1:])
        for name, result in zip(names, results, strict=True)
        if result.shape[:1] == (rows,)
    )
    if not outputs:
        raise ModelRejected(f"no float output of the model has {rows} rows, as its inputs have")
    return TrialRun(outputs, min(times) / rows)


def _input_ports(session: Any) -> tuple[Port, ...]:
    ports = []
    for meta in session.inputs_meta:
        shape = meta.shape[1:]
        if meta.type != "tensor(float)" or not all(isinstance(size, int) for size in shape):
            raise ModelRejected(f"input {meta.name!r} is a {meta.type} of shape {meta.shape}")
        ports.append(Port(meta.name, tuple(shape)))
    if not ports:
        raise ModelRejected("the model has no input")
    return tuple(ports)


def _checked(port: Port, array: Floats) -> Floats:
    """Return the array if it fits the port, because onnxruntime gets its address only."""
    if array.dtype != np.float32 or array.shape[1:] != port.shape or not array.flags.c_contiguous:
        raise ValueError(
            f"port {port.name} takes float32 [n, *{port.shape}], got {array.dtype} {array.shape}"
        )
    return array
