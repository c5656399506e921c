"""Runs of models that cannot work in place: they get blocks of rows as arrays of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from arkml.batches import Floats, chunks
from arkml.policies.ports import Port
from arkml.policies.run_limit import RunLimit

Run = Callable[[Mapping[str, Floats]], Sequence[Floats]]
"""Runs a model on inputs by name, float32, [rows, *shape]; returns its outputs in order."""

LimitedRun = Callable[[Mapping[str, Floats], RunLimit], Sequence[Floats]]
"""Runs a model as `Run` does, within the time of a limit."""

_ROWS = 1_024


class BlockModel:
    """
    A model made of its ports and a function that runs it on any number of rows.

    session_bytes: the memory of the model while it is loaded.
    """

    def __init__(
        self,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        run: LimitedRun,
        *,
        session_bytes: int,
    ) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.session_bytes = session_bytes
        self._run = run

    def prepare(
        self,
        count: int,
        feeds: Mapping[str, Floats],
        fetches: Mapping[str, Floats],
        limit: RunLimit,
    ) -> Sequence[Callable[[], object]]:
        """
        Return functions that run the model; feeds, fetches: float32, [count, *shape], by port name.
        """
        names = [port.name for port in self.outputs]

        def run(inputs: Mapping[str, Floats]) -> Sequence[Floats]:
            return self._run(inputs, limit)

        return [
            partial(run_block, run, names, part, 0, feeds, fetches) for part in chunks(count, _ROWS)
        ]


def run_block(
    run: Run,
    names: Sequence[str],
    part: slice,
    least: int,
    feeds: Mapping[str, Floats],
    fetches: Mapping[str, Floats],
) -> None:
    """
    Run a model on the rows `part` of a batch.

    names: the outputs that `run` returns, in order. least: the number of rows that the model needs;
    rows of zeros fill up a smaller number. feeds, fetches: float32, [count, *shape], by name;
    outputs that `fetches` does not name are dropped.
    """
    size = part.stop - part.start
    missing = max(0, least - size)
    inputs = {name: rows_of(array, part) for name, array in feeds.items()}
    results = run({name: _padded(array, missing) for name, array in inputs.items()})
    for name, result in zip(names, results, strict=True):
        if name in fetches:
            target = fetches[name][part]
            target[...] = result[:size].reshape(target.shape)


def rows_of(feed: Floats, part: slice) -> Floats:
    """
    Return the rows `part` of an input: float32, [rows, *shape].

    An input whose rows are all alike may have fewer rows than the batch.
    """
    if part.stop <= len(feed):
        return feed[part]
    size = part.stop - part.start
    if size <= len(feed):
        return feed[:size]
    return np.broadcast_to(feed[:1], (size, *feed.shape[1:]))


def _padded(array: Floats, missing: int) -> Floats:
    if not missing:
        return np.ascontiguousarray(array)
    return np.concatenate([array, np.zeros((missing, *array.shape[1:]), np.float32)])
