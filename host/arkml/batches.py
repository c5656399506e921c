"""One submit's rows, as views of column memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

ROW = np.dtype(
    [
        ("id", "<u8"),
        ("state", "<u4"),
        ("reward", "<f4"),
        ("length", "<f4"),
        ("given", "<u4"),  # floats in the row of `given`: 0 or num_actions
        ("metadata", "<u4"),  # items of metadata that came with the row
        ("reserved", "<u4"),
    ]
)
"""The scalars of one pushed observation. The shim writes it; its offsets are `ROW.fields`."""


def row_offset(field: str) -> int:
    """Where a field of ROW lies, in bytes."""
    fields = ROW.fields
    assert fields is not None
    return int(fields[field][1])


class Batch:
    """
    Rows to act on, in push order.

    rows: ROW, [n]. features: float32, [n, num_features]. A policy fills actions, float32,
    [n, num_actions], and values, float32, [n] (left alone by a policy that has none: they are
    zero). keys: uint64, [] or [n]: the session of each row, unique in its host. given: float32,
    [n, num_actions], actions that came with the rows, or None where the session takes none.
    `scratch` belongs to the policy that answered the batch last; the same object comes again
    while the same memory holds the same number of rows.
    """

    __slots__ = ("actions", "features", "given", "keys", "rows", "scratch", "values")

    def __init__(
        self,
        rows: npt.NDArray[Any],
        features: Floats,
        actions: Floats,
        values: Floats,
        keys: npt.NDArray[np.uint64],
        given: Floats | None = None,
    ) -> None:
        self.rows = rows
        self.features = features
        self.actions = actions
        self.values = values
        self.keys = keys
        self.given = given
        self.scratch: Any = None

    def __len__(self) -> int:
        return len(self.rows)


def chunks(count: int, size: int) -> Iterator[slice]:
    """Cut `count` rows into slices of at most `size`."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


class Metadata:
    """One metadata item of a pushed row: the row's index in its batch, name and value."""

    __slots__ = ("name", "row", "value")

    def __init__(self, row: int, name: str, value: float) -> None:
        self.row = row
        self.name = name
        self.value = value


MetadataLog = Sequence[Metadata]

MASK = "mask/"
"""Metadata called so says what an agent cannot choose; it is no metric."""
