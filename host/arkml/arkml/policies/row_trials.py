"""Test runs that show whether a model's results for a row depend on other rows, or on its index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from arkml.batches import Floats
from arkml.errors import ModelRejected
from arkml.policies.load_time import LoadTime
from arkml.policies.ports import Port

Results = Mapping[str, Floats]
"""The outputs of a model by name: float32, [rows, *shape]."""

MOST_FLOATS = 1 << 24
"""Numbers of all inputs of a trial."""

_LEAST_ROWS = 8
_ALIKE = 1e-3  # of the numbers of one row, computed alone and among others
_SIZES = (1e-2, 1.0, 1e2, 1e4)  # of inputs: what clips or divides by them acts on some only
_ALIKE_IN_SIZES = 1e-2  # where the sine of a large number may differ by more


class TriedModel(Protocol):
    """A model that can be test-run; `chunk` is the number of rows in one run."""

    inputs: tuple[Port, ...]
    outputs: Sequence[Port]
    chunk: int

    def run(
        self,
        count: int,
        feeds: Mapping[str, Floats],
        fetches: Mapping[str, Floats],
        time_left: LoadTime,
    ) -> None:
        """Run the model during loading. Raises ModelRejected, or the error of `LoadTime.late`."""


def require_alike(free: TriedModel, fixed: TriedModel, time_left: LoadTime) -> None:
    """Raise ModelRejected unless two models compute the same results for a few test rows."""
    for feeds, results, tolerance in _trials(fixed, time_left):
        _require_alike(_results(free, feeds, time_left), results, tolerance)


def results_of_rows(model: TriedModel, time_left: LoadTime) -> Results:
    """
    Return the results of a model with a fixed batch size for a few constant test rows.

    Raises ModelRejected if a row's results depend on other rows, or on its index.
    """
    first: Results = {}
    for feeds, results, tolerance in _trials(model, time_left):
        order = np.random.default_rng(1).permutation(_count(model))
        others = _results(model, {name: rows[order] for name, rows in feeds.items()}, time_left)
        _require_alike({name: rows[order] for name, rows in results.items()}, others, tolerance)
        first = first or results
    return first


def are_alike(results: Results, others: Results) -> bool:
    """Return whether two models gave equal outputs for the same rows."""
    return not _different(results, others, _ALIKE)


def _require_alike(results: Results, others: Results, tolerance: float) -> None:
    if found := _different(results, others, tolerance):
        raise ModelRejected(f"output {found[:80]!r} of a row depends on other rows")


def _different(results: Results, others: Results, tolerance: float) -> str:
    """Return the name of an output that differs, else an empty one."""
    for name, rows in results.items():
        given = others.get(name)
        if given is None or rows.shape != given.shape:
            return name
        rows, given = rows.reshape(len(rows), -1), given.reshape(len(given), -1)
        sizes = np.abs(np.where(np.isfinite(given), given, 0)).max(axis=1, initial=1, keepdims=True)
        with np.errstate(over="ignore"):
            if not np.allclose(rows, given, rtol=tolerance, atol=tolerance * sizes, equal_nan=True):
                return name
    return ""


def _count(model: TriedModel) -> int:
    return max(_LEAST_ROWS, 2 * model.chunk + 1)


def _trials(
    model: TriedModel, time_left: LoadTime
) -> Iterator[tuple[Mapping[str, Floats], Results, float]]:
    """
    Yield inputs of a few rows, with the results of a model for them and the tolerance.

    The rows are of one size, and then of several, unless the model fails on these: an index of such
    a size names nothing. Raises ModelRejected if rows are too large.
    """
    count = _count(model)
    if count * sum(port.width for port in model.inputs) > MOST_FLOATS:
        raise ModelRejected(f"the inputs of the model are too large for {count} rows")
    random = np.random.default_rng(0)
    feeds = {
        port.name: random.standard_normal((count, *port.shape)).astype(np.float32)
        for port in model.inputs
    }
    yield feeds, _results(model, feeds, time_left), _ALIKE
    sizes = np.resize(np.array(_SIZES, np.float32), count)
    feeds = {name: (rows.T * sizes).T.copy() for name, rows in feeds.items()}
    try:
        results = _results(model, feeds, time_left)
    except ModelRejected:
        time_left.require()
        return
    yield feeds, results, _ALIKE_IN_SIZES


def _results(model: TriedModel, feeds: Mapping[str, Floats], time_left: LoadTime) -> Results:
    count = len(next(iter(feeds.values())))
    fetches = {port.name: np.zeros((count, *port.shape), np.float32) for port in model.outputs}
    model.run(count, feeds, fetches, time_left)
    return fetches
