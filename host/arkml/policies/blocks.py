"""Runs of a model in blocks, where it takes one batch size or a limited number of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from arkml.batches import Floats, chunks
from arkml.policies.signature import Port

Run = Callable[[Mapping[str, Floats]], Sequence[Floats]]
"""Runs a model on inputs by name, float32, [rows, *shape]; returns its outputs in order."""

_ROWS = 1_024


class BlockModel:
    """
    A model made of its ports and a function that runs it.

    `block` is the only batch size that the function takes, None if it takes any.
    """

    def __init__(
        self, inputs: Sequence[Port], outputs: Sequence[Port], run: Run, block: int | None
    ) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self._run = run
        self._block = block

    def prepare(
        self, count: int, feeds: Mapping[str, Floats], fetches: Mapping[str, Floats]
    ) -> Sequence[Callable[[], object]]:
        """Return calls that run the model; feeds, fetches: float32, [count, *shape], by name."""
        names = [port.name for port in self.outputs]
        rows, padded = self._block or _ROWS, self._block is not None
        return [
            partial(run_in_blocks, self._run, names, rows, count, feeds, fetches, padded=padded)
        ]


def run_in_blocks(
    run: Run,
    names: Sequence[str],
    rows: int,
    count: int,
    feeds: Mapping[str, Floats],
    fetches: Mapping[str, Floats],
    *,
    padded: bool,
) -> None:
    """
    Run a model on `count` rows, `rows` at a time.

    names: those of the outputs that `run` returns, in order. feeds, fetches: float32,
    [count, *shape], by name; outputs that `fetches` does not name are dropped. `padded` fills the
    last block with zeros, for a model that takes no other size.
    """
    for block in chunks(count, rows):
        size = block.stop - block.start
        missing = rows - size if padded else 0
        inputs = {name: rows_of(array, block) for name, array in feeds.items()}
        results = run({name: _padded(array, missing) for name, array in inputs.items()})
        for name, result in zip(names, results, strict=True):
            if name in fetches:
                target = fetches[name][block]
                target[...] = result[:size].reshape(target.shape)


def rows_of(feed: Floats, part: slice) -> Floats:
    """
    Return the rows `part` of a feed: float32, [rows, *shape].

    A feed whose rows are all alike may have fewer rows than the batch.
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
