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
        ("given", "<u4"),  # number of floats in the row of `given`: 0 or num_actions
        ("metadata", "<u4"),  # number of metadata items pushed with the row
        ("reserved", "<u4"),
    ]
)
"""The scalars of one pushed observation. The shim writes it; its offsets are `ROW.fields`."""


def row_offset(field: str) -> int:
    """Return the offset of a field of ROW in bytes."""
    fields = ROW.fields
    assert fields is not None
    return int(fields[field][1])


class Batch:
    """
    The rows of one submit, in push order.

    rows: ROW, [n]. features: float32, [n, num_features]. A policy fills actions, float32,
    [n, num_actions], and values, float32, [n]; a policy without values leaves them at zero.
    keys: uint64, [] or [n], the session of each row, unique in its host. given: float32,
    [n, num_actions], the actions that the guest pushed with the rows, or None in a session that
    takes none. The arrays are views, valid until the policy returns. A later submit of as many
    rows may reuse the object, so `scratch` may cache what the policy derives from the arrays.
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
    """Yield slices of at most `size` rows that cover `count` rows."""
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
"""Prefix of metadata that masks actions an agent cannot choose; it is not a metric."""
