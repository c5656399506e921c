"""Trials of models: whether what they give for a row depends on other rows, or on its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

_ALIKE = 1e-3  # of the numbers of one row, computed alone and among others


class TriedModel(Protocol):
    """A model as a trial runs it; `chunk` is the number of rows of one run."""

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
        """Run the model while it is loaded. Raises ModelRejected, or as `LoadTime.late`."""


def require_alike(free: TriedModel, fixed: TriedModel, time_left: LoadTime) -> None:
    """Raise ModelRejected unless two models compute each row of a few alike."""
    feeds = _feeds(fixed)
    _require_alike(_results(free, feeds, time_left), _results(fixed, feeds, time_left))


def results_of_rows(model: TriedModel, time_left: LoadTime) -> Results:
    """
    Return what a model with a fixed batch gives for a few rows, always the same ones.

    Raises ModelRejected if a row's results depend on other rows, or on its place among them.
    """
    feeds = _feeds(model)
    results = _results(model, feeds, time_left)
    order = np.random.default_rng(1).permutation(_count(model))
    others = _results(model, {name: rows[order] for name, rows in feeds.items()}, time_left)
    _require_alike({name: rows[order] for name, rows in results.items()}, others)
    return results


def are_alike(results: Results, others: Results) -> bool:
    """Return True if two models gave the same outputs for the same rows."""
    return not _different(results, others)


def _require_alike(results: Results, others: Results) -> None:
    if found := _different(results, others):
        raise ModelRejected(f"output {found[:80]!r} of a row depends on other rows")


def _different(results: Results, others: Results) -> str:
    """Return the name of an output that differs, else an empty one."""
    for name, rows in results.items():
        given = others.get(name)
        if (
            given is None
            or rows.shape != given.shape
            or not np.allclose(rows, given, rtol=_ALIKE, atol=_ALIKE, equal_nan=True)
        ):
            return name
    return ""


def _count(model: TriedModel) -> int:
    return 2 * model.chunk + 1


def _feeds(model: TriedModel) -> Results:
    """Return a few rows of inputs. Raises ModelRejected if they are too large."""
    count = _count(model)
    if count * sum(port.width for port in model.inputs) > MOST_FLOATS:
        raise ModelRejected(f"the inputs of the model are too large for {count} rows")
    random = np.random.default_rng(0)
    return {
        port.name: random.standard_normal((count, *port.shape)).astype(np.float32)
        for port in model.inputs
    }


def _results(model: TriedModel, feeds: Results, time_left: LoadTime) -> Results:
    count = len(next(iter(feeds.values())))
    fetches = {port.name: np.zeros((count, *port.shape), np.float32) for port in model.outputs}
    model.run(count, feeds, fetches, time_left)
    return fetches
