"""ONNX models, run by onnxruntime on the caller's arrays without copies."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from arkml.base.handler_errors import is_of_handler
from arkml.base.loggers import SafeLogger
from arkml.batches import Floats, chunks
from arkml.errors import ModelRejected
from arkml.limits import Limits
from arkml.policies.blocks import rows_of, run_block
from arkml.policies.border import (
    RowAxes,
    conform,
    doubtful_rows,
    find_rows,
    inputs_of,
    opened,
    outputs_of,
    ports_of,
    possible_rows,
    prune,
)
from arkml.policies.graph_search import twins_of
from arkml.policies.load_time import LoadTime
from arkml.policies.model import ALIKE, Call
from arkml.policies.ort import (
    ARENA_BYTES,
    BoundRun,
    OrtRun,
    OrtRunOptions,
    OrtSession,
    open_session,
    reason,
)
from arkml.policies.pace import FEWEST, ModelTime
from arkml.policies.ports import Layout, Port
from arkml.policies.row_mixing import require_rows_apart
from arkml.policies.row_trials import (
    MOST_FLOATS,
    Results,
    are_alike,
    require_alike,
    results_of_rows,
)
from arkml.policies.run_limit import RunLimit
from arkml.policies.shared_run import SharedRun
from arkml.policies.subnormals import call_flushed
from arkml.policies.version_outline import Pieces, VersionOutline, joined
from arkml.policies.vetting import Vetted, examine, examined

log = SafeLogger(__name__)

CHUNK = ALIKE
"""Rows of one run. With more it leaves the processor's cache and is up to a fifth slower."""

_PART_SECONDS = 2e-3
"""CPU seconds by estimate, some 0.4 ms in truth, of a part of a batch that one thread computes."""

FOLDED_BYTES = 4 << 20
"""Bytes of constants that are computed once and kept, in all nodes of a model together."""

_CHUNK_BYTES = 128 << 20
_ABREAST_BYTES = ARENA_BYTES // 2
_TRIAL_ROWS = 3
_TRIAL_RUNS = 5
_TRIAL_SECONDS = 0.1
_QUICK = 0.025
"""
CPU seconds; batches that take fewer, by estimate, run without a watch.

Where they would take more with subnormal numbers, they run with these set to zero.
"""

_SESSION_BYTES = 128 << 10
_COPIES = 2  # of the weights, at most: as they are in the file, and packed for multiplication


@dataclass(frozen=True, slots=True)
class TrialRun:
    """Results of a model's first runs: ports that have rows, and CPU seconds of a run."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    seconds: float


class OnnxModel:
    """
    A model loaded by onnxruntime, with its ports. Any thread may run it.

    `block` is the only batch size that it takes, or None; `why_one` is the reason why that is 1
    although the file leaves it open, or empty. `chunk` is the largest number of rows in one run,
    `seconds` the time that a batch may take. `slowness` is the measured time of a run divided by
    the estimate in `pace`. Up to `abreast` runs may be in progress at the same time.
    """

    def __init__(
        self,
        session: OrtSession,
        inputs: tuple[Port, ...],
        outputs: Sequence[Port],
        pace: ModelTime,
        *,
        block: int | None,
        why_one: str,
        chunk: int,
        slowness: float,
        seconds: float,
        session_bytes: int,
        abreast: int,
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.block = block
        self.why_one = why_one
        self.chunk = block or chunk
        self.session_bytes = session_bytes
        self._session = session
        self._abreast = abreast
        self._pace = pace
        self._slowness = slowness
        self._seconds = seconds
        self._options = OrtRunOptions()

    def run(
        self,
        count: int,
        feeds: Mapping[str, Floats],
        fetches: Mapping[str, Floats],
        time_left: LoadTime,
    ) -> None:
        """Run the model as a test during loading. Raises ModelRejected, or as `LoadTime.late`."""
        options = OrtRunOptions()

        def cancel() -> None:
            options.terminate = True

        is_flushed = self._pace.is_flushed
        calls = [
            self._call(part, feeds, fetches, options, is_flushed=is_flushed)
            for part in chunks(count, self.chunk)
        ]
        with time_left.watched(cancel) as watch:
            try:
                for call in calls:
                    call()
            except Exception as error:
                if is_of_handler(error):
                    raise
                if watch.reason is not None:
                    raise time_left.late(watch.reason, f"run on {_rows(count)}") from error
                raise ModelRejected(
                    f"the model fails on {_rows(count)}: {reason(error)}"
                ) from error

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
        expected = self._slowness * self._pace.seconds(count, self.chunk, at_worst=True)
        is_flushed = self._pace.is_flushed or expected > _QUICK
        if is_flushed:
            expected = self._slowness * self._pace.seconds(count, self.chunk)
        is_quick = expected <= _QUICK
        # Separate options: this run may be stopped, others must not be.
        options = self._options if is_quick else OrtRunOptions()
        calls = [
            self._call(part, feeds, fetches, options, is_flushed=is_flushed)
            for part in self._parts(count)
        ]
        if is_quick and len(calls) == 1:
            return calls
        shared = SharedRun(calls, limit.helpers, self._abreast, (feeds, fetches))
        return [shared if is_quick else partial(limit.run, shared, options, self._seconds)]

    def _parts(self, count: int) -> Iterable[slice]:
        """Return the rows of each run for `count` rows: as many in each, for several threads."""
        if self.block is not None or count <= self.chunk:
            return chunks(count, self.chunk)
        return chunks(count, -(-count // -(-count // self.chunk)))

    def _call(
        self,
        part: slice,
        feeds: Mapping[str, Floats],
        fetches: Mapping[str, Floats],
        options: OrtRunOptions,
        *,
        is_flushed: bool,
    ) -> Call:
        if self.block is None:
            return self._bound(part, feeds, fetches, options, is_flushed=is_flushed)
        names = [port.name for port in self.outputs]

        def run(inputs: Mapping[str, Floats]) -> Sequence[Floats]:
            results: Sequence[Floats] = self._session.run(names, inputs, options)
            return results

        call = partial(run_block, run, names, part, self.block, feeds, fetches)
        return partial(call_flushed, call) if is_flushed else call

    def _bound(
        self,
        part: slice,
        feeds: Mapping[str, Floats],
        fetches: Mapping[str, Floats],
        options: OrtRunOptions,
        *,
        is_flushed: bool,
    ) -> Call:
        """Return one run with all arrays bound by address."""
        inputs = {
            port.name: _checked(port, rows_of(feeds[port.name], part)) for port in self.inputs
        }
        outputs = {
            port.name: _checked(port, fetches[port.name])[part]
            for port in self.outputs
            if port.name in fetches
        }
        return BoundRun(self._session, inputs, outputs, options, is_flushed=is_flushed)


class OnnxFile:
    """
    An ONNX file that passed vetting, from which models are loaded.

    `layout` has all ports that have rows, and the names of other outputs. Loading may take
    `seconds` of processor time, from now on. Raises ModelRejected, and Unavailable if the machine
    is too busy.
    """

    def __init__(self, data: bytes, limits: Limits, *, seconds: float) -> None:
        self._time = LoadTime(seconds)
        self._vetted = examine(data, limits)
        self._time.require()
        self._plain: Vetted | None = None  # the nodes of the file that were loaded, if as they are
        model = self._vetted.model
        ways = possible_rows(self._vetted)
        self._rows = ways[0] if len(ways) == 1 else self._rows_of(ways)
        outputs = tuple(ports_of(self._vetted, self._rows, outputs_of(model)))
        with_rows = {port.name for port in outputs}
        self.layout = Layout(
            tuple(ports_of(self._vetted, self._rows, inputs_of(model))),
            outputs,
            twins_of(model),
            tuple(name for name in outputs_of(model) if name not in with_rows),
        )

    def load(self, outputs: Collection[str] | None = None) -> OnnxModel:
        """
        Load a model with some outputs, by default all, and run it on a few rows. Call it once.

        Nodes that only other outputs need are left out. Raises as the constructor does.
        """
        known = [port.name for port in self.layout.outputs]
        names = known if outputs is None else [name for name in known if name in outputs]
        if not names:
            without = ", ".join(map(repr, self.layout.constants))
            raise ModelRejected(
                f"no output of the model has a row for each row of its inputs: {without}"
            )
        if len(self.layout.inputs) < len(inputs_of(self._vetted.model)):
            raise ModelRejected("an input of the model has no axis for the rows of a batch")
        vetted, rows = self._vetted, self._rows
        is_pruned = prune(vetted.model, names)
        if rows.block is None:
            is_changed = conform(vetted.model, rows, vetted.tensors)
            loaded = examined(vetted.model) if is_changed or is_pruned else vetted
            mixing = _mixing(loaded)
            self._plain = None if is_changed or mixing else loaded
            return _load(loaded, self._time, 1 if mixing else None, mixing)
        opened_one = self._opened(vetted, rows, names)
        conform(vetted.model, rows, vetted.tensors)
        fixed = _load(examined(vetted.model), self._time, rows.block)
        if opened_one is None:
            return fixed
        try:
            free = _load(opened_one, self._time)
            require_alike(free, fixed, self._time)
        except ModelRejected as error:
            self._time.require()
            log.debug("the model keeps its batch of %s: %s", _rows(rows.block), error)
            return fixed
        return free

    def of_one_row(self, outputs: Collection[str]) -> Vetted:
        """
        Return the graph that computes only some outputs, for one row. Call it once.

        Raises ModelRejected for a graph with a fixed batch size other than 1.
        """
        vetted, rows = self._vetted, self._rows
        if rows.block not in (None, 1):
            raise ModelRejected(f"the model takes {_rows(rows.block)} at once, and not one")
        prune(vetted.model, outputs)
        conform(vetted.model, rows, vetted.tensors)
        return examined(vetted.model)

    def exported(self, outputs: Collection[str]) -> tuple[bytes, int | None]:
        """
        Return a file that computes some outputs in another runtime, and its batch size. Call once.

        The ports of the model are float32, with the batch as first axis. The batch size is None if
        any number of rows is accepted. Raises as the constructor does.
        """
        vetted, rows = self._vetted, self._rows
        prune(vetted.model, outputs)
        conform(vetted.model, rows, vetted.tensors)
        loaded = examined(vetted.model)
        block = rows.block or (1 if _mixing(loaded) else None)
        return loaded.model.SerializeToString(), _load(loaded, self._time, block).block

    def note(self, key: str) -> str:
        """Return the value of a key in the model's metadata, "" if the key is missing."""
        found = [one.value for one in self._vetted.model.metadata_props if one.key == key]
        return str(found[0]) if found else ""

    def load_version(
        self, data: bytes, outputs: Sequence[str]
    ) -> tuple[OnnxModel, KnownVersion | None]:
        """
        Load a policy version as `load` does, and return facts for loading the next version faster.

        The facts are None if the next version needs vetting. `data` is the file, `outputs` are in
        its order.
        """
        is_open = self._rows.block is None
        outline = VersionOutline.of(data, self._vetted.model) if is_open else None
        model, loaded = self.load(outputs), self._plain
        if outline is None or loaded is None:
            return model, None
        pieces = outline.pieces_of(data, loaded.model)
        if pieces is None:
            return model, None
        facts = replace(loaded, model=None, tensors={})
        return model, KnownVersion(outline, self.layout, outputs, model.inputs, pieces, facts)

    def _rows_of(self, ways: Sequence[RowAxes]) -> RowAxes:
        """Return the one place of the rows by which they are apart. Raises ModelRejected."""
        found: list[tuple[RowAxes, Results]] = []
        for rows in ways:
            with suppress(ModelRejected):
                found.append((rows, results_of_rows(self._copy(rows), self._time)))
            self._time.require()
        if found and all(are_alike(found[0][1], results) for _, results in found[1:]):
            return found[0][0]
        axes = {name: {way.axes.get(name) for way in ways} for name in ways[0].axes}
        name = next(name for name, places in axes.items() if len(places) > 1)
        raise doubtful_rows(self._vetted, name)

    def _copy(self, rows: RowAxes) -> OnnxModel:
        """Load a copy of the model with all outputs that have rows at this place."""
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(self._vetted.model)
        prune(model, [name for name in outputs_of(model) if name in rows.axes])
        conform(model, rows, self._vetted.tensors)
        return _load(examined(model), self._time, rows.block)

    def _opened(self, vetted: Vetted, rows: RowAxes, names: Sequence[str]) -> Vetted | None:
        """Return the model for any number of rows, None if it cannot be."""
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(vetted.model)
        shapes = {port.name: port.shape for port in (*self.layout.inputs, *self.layout.outputs)}
        for _ in opened(model, rows, vetted.tensors):
            self._time.require()
            with suppress(ModelRejected):
                found = examined(model)
                require_rows_apart(found)
                place = find_rows(found)
                ports = ports_of(found, place, [*inputs_of(model), *names])
                if len(ports) == len(self.layout.inputs) + len(names) and all(
                    port.shape == shapes[port.name] for port in ports
                ):
                    conform(model, place, found.tensors)
                    return examined(model)
        return None


@dataclass(frozen=True, slots=True)
class KnownVersion:
    """
    A vetted and loaded policy version, by which versions that differ only in weights are loaded.

    inputs: the inputs of the model with these outputs. pieces: the bytes of that model outside of
    its weights, with the positions of the weights in a file.
    """

    outline: VersionOutline
    layout: Layout
    outputs: Sequence[str]
    inputs: tuple[Port, ...]
    pieces: Pieces
    vetted: Vetted

    def load(self, data: bytes, seconds: float) -> OnnxModel:
        """Load a file that differs only in weights. Raises ModelRejected and Unavailable."""
        model = joined(self.pieces, data)
        return _open(model, self.vetted, LoadTime(seconds), known=self.inputs)


def load_onnx(data: bytes, limits: Limits, *, seconds: float) -> OnnxModel:
    """Vet a model and load it with all outputs. Raises as `OnnxFile` does."""
    return OnnxFile(data, limits, seconds=seconds).load()


def _mixing(vetted: Vetted) -> str:
    """Return why the rows of a model for any batch depend on each other, empty if they do not."""
    try:
        require_rows_apart(vetted)
    except ModelRejected as error:
        log.debug("the model runs on 1 row at a time: %s", error)
        return str(error)
    return ""


def _load(
    vetted: Vetted, time_left: LoadTime, block: int | None = None, why_one: str = ""
) -> OnnxModel:
    # The vetted model, not its bytes: another parser might read those differently.
    return _open(vetted.model.SerializeToString(), vetted, time_left, block, why_one)


def _open(
    data: bytes,
    vetted: Vetted,
    time_left: LoadTime,
    block: int | None = None,
    why_one: str = "",
    known: tuple[Port, ...] = (),
) -> OnnxModel:
    """
    Open a session of the bytes of a vetted model, and run it on a few rows.

    Args:
        data: The bytes.
        vetted: The facts about the model.
        time_left: The time that loading may take.
        block: The number of rows that it runs on at a time, None for any.
        why_one: The reason for a `block` of one row.
        known: Its inputs, where a session of the same nodes has told them.

    """
    pace, cost = vetted.pace, vetted.cost
    largest, folded = vetted.folded(FOLDED_BYTES)
    session = open_session(data, time_left, folded_bytes=max(1, largest))
    try:
        trial = _try_out(session, block or _TRIAL_ROWS, pace, time_left, known)
    except ModelRejected as error:
        if block is not None:
            raise
        time_left.require()
        # Some models claim any batch size but have shapes that fit one row only.
        block, why_one = 1, str(error)
        trial = _try_out(session, block, pace, time_left, known)
    rows = block or _TRIAL_ROWS
    slowness = max(1.0, trial.seconds / pace.seconds(rows, rows))
    part = max(FEWEST, int(_PART_SECONDS / slowness / max(pace.row_seconds, 1e-9)))
    fitting = min(_CHUNK_BYTES // max(1, cost.row_bytes), int(pace.block_rows / slowness), part)
    chunk = max(1, min(CHUNK, fitting))
    return OnnxModel(
        session,
        trial.inputs,
        trial.outputs,
        pace,
        block=block,
        why_one=why_one,
        chunk=chunk,
        abreast=max(1, _ABREAST_BYTES // max(1, (block or chunk) * cost.row_bytes)),
        slowness=slowness,
        seconds=time_left.seconds,
        session_bytes=_SESSION_BYTES
        + _COPIES * len(data)
        + folded
        + cost.fixed_bytes
        + cost.row_bytes,
    )


def _try_out(
    session: OrtSession, rows: int, pace: ModelTime, time_left: LoadTime, known: tuple[Port, ...]
) -> TrialRun:
    names = session.outputs
    ports = known or _input_ports(session)
    if rows * sum(port.width for port in ports) > MOST_FLOATS:
        raise ModelRejected(f"the inputs of the model are too large for {_rows(rows)}")
    feeds = {port.name: np.zeros((rows, *port.shape), np.float32) for port in ports}
    options = OrtRunOptions()
    times: list[float] = []

    def cancel() -> None:
        options.terminate = True

    with time_left.watched(cancel) as watch:
        try:
            run = OrtRun(session, names, feeds, options)
            once = partial(call_flushed, run) if pace.is_flushed else run
            # The first run is slower than the others.
            while names and len(times) < _TRIAL_RUNS and sum(times) < _TRIAL_SECONDS:
                started = time.thread_time()
                once()
                times.append(time.thread_time() - started)
            results = run.outputs()
        except Exception as error:
            if is_of_handler(error):
                raise
            if watch.reason is not None:
                raise time_left.late(watch.reason, f"run on {_rows(rows)}") from error
            raise ModelRejected(f"the model fails on {_rows(rows)}: {reason(error)}") from error
    for name, result in zip(names, results, strict=True):
        if result.shape[:1] != (rows,):
            raise ModelRejected(
                f"output {name[:80]!r} has the shape {list(result.shape)} for {_rows(rows)}"
            )
    outputs = [Port(name, r.shape[1:]) for name, r in zip(names, results, strict=True)]
    return TrialRun(ports, tuple(outputs), min(times))


def _input_ports(session: OrtSession) -> tuple[Port, ...]:
    ports = []
    for name, kind, shape in session.inputs:
        if kind != "tensor(float)" or any(size < 0 for size in shape[1:]):
            raise ModelRejected(f"input {name!r} is a {kind} of shape {list(shape)}")
        ports.append(Port(name, shape[1:]))
    if not ports:
        raise ModelRejected("the model has no input")
    return tuple(ports)


def _rows(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"


def _checked(port: Port, array: Floats) -> Floats:
    """Return the array if it fits the port, because onnxruntime gets its address only."""
    if array.dtype != np.float32 or array.shape[1:] != port.shape or not array.flags.c_contiguous:
        raise ValueError(
            f"port {port.name} takes float32 [n, *{port.shape}], got {array.dtype} {array.shape}"
        )
    return array
