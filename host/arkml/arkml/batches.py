"""The rows of a submit: one row for each agent that needs an action, as views of column memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, overload

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

ROW = np.dtype(
    [
        ("id", "<u8"),
        ("state", "<u4"),
        ("reward", "<f4"),
        ("length", "<f4"),
        ("given", "<u4"),  # number of floats in the row of `pushed_actions`: 0 or num_actions
        ("metadata", "<u4"),  # number of metadata items pushed with the row
        ("moved", "<u4"),
    ]
)
"""
The scalars of one pushed observation. The shim writes them at the offsets of `ROW.fields`.

`moved` has the bits of `runtime.shim.control.Moved` beside the two of the state. It is zero while
the agent continues: the row has the state RUNNING, and the previous row in its place had the same
id, did not end its episode, and was in a submit that is followed (`Region.follow`).
"""


def row_offset(field: str) -> int:
    """Return the offset of a field within a record of the dtype ROW, in bytes."""
    fields = ROW.fields
    assert fields is not None
    return int(fields[field][1])


class Batch:
    """
    Rows to act on, the rows of one session in the order in which they were pushed.

    The arrays are views that live until `Policy.act` returns. `n` is `len(batch)`.

    - `rows`: records, [n], with the fields `id` (uint64, of the agent), `state` (uint32: 0 Running,
      1 Terminal, 2 Interrupted, 3 Initial), `reward` and `length` (float32), `given` and
      `metadata` (uint32: actions and items of metadata that came with the row).
    - `features`: float32, [n, num_features]. Values that are not finite are passed on.
    - `actions`: float32, [n, num_actions], to be filled; at first they hold values of an earlier
      batch. Agents whose episode ended get zeros, and so do numbers that are not finite, which
      `Statistics.non_finite_actions` counts.
    - `values`: float32, [n], to be filled by a policy that has values, else left alone as zeros.
    - `keys`: uint64, [n], or [] if all rows are of one session: the key of each row's session,
      unique in its host.
    - `pushed_actions`: float32, [n, num_actions], actions that came with the rows, or None if the
      session takes none.
    - `scratch`: an object of the policy's choice, for example a work array of [n, 64], which is
      kept while the same memory holds the same number of rows.
    """

    __slots__ = ("actions", "features", "keys", "pushed_actions", "rows", "scratch", "values")

    def __init__(
        self,
        rows: npt.NDArray[Any],
        features: Floats,
        actions: Floats,
        values: Floats,
        keys: npt.NDArray[np.uint64],
        pushed_actions: Floats | None = None,
    ) -> None:
        self.rows: npt.NDArray[Any] = rows
        self.features: Floats = features
        self.actions: Floats = actions
        self.values: Floats = values
        self.keys: npt.NDArray[np.uint64] = keys
        self.pushed_actions: Floats | None = pushed_actions
        self.scratch: Any = None

    def __len__(self) -> int:
        return len(self.rows)


def chunks(count: int, size: int) -> Iterator[slice]:
    """Yield slices of at most `size` rows that cover `count` rows."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


class Metadata:
    """
    One item of metadata of a pushed row: the index of the row in its batch, a name and a value.
    """

    __slots__ = ("name", "row", "value")

    def __init__(self, row: int, name: str, value: float) -> None:
        self.row: int = row
        self.name: str = name
        self.value: float = value


class MetadataLog(Sequence[Metadata]):
    """
    The metadata of the rows of one submit, in push order, as arrays of m items.

    The arrays must not be changed. It is also a sequence of `Metadata` objects, made on access. The
    items ("success", 1) of row 0 and of row 3, for example, have rows [0, 3], names ("success",),
    codes [0, 0] and values [1, 1].

    Attributes:
        rows: intp, [m], the index of each item's row in its batch.
        names: The distinct names.
        codes: intp, [m], the index of each item's name in `names`.
        values: float64, [m].

    """

    __slots__ = ("codes", "names", "rows", "values")

    def __init__(
        self,
        rows: npt.NDArray[np.intp],
        names: tuple[str, ...],
        codes: npt.NDArray[np.intp],
        values: npt.NDArray[np.float64],
    ) -> None:
        self.rows: npt.NDArray[np.intp] = rows
        self.names: tuple[str, ...] = names
        self.codes: npt.NDArray[np.intp] = codes
        self.values: npt.NDArray[np.float64] = values

    @staticmethod
    def of(items: Iterable[Metadata]) -> MetadataLog:
        """Return a log that holds the given items."""
        known: dict[str, int] = {}
        listed = [(item.row, known.setdefault(item.name, len(known)), item.value) for item in items]
        rows, codes, values = zip(*listed, strict=True) if listed else ((), (), ())
        return MetadataLog(
            np.array(rows, np.intp), tuple(known), np.array(codes, np.intp),
            np.array(values, np.float64),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Metadata]:
        names = self.names
        columns = self.rows.tolist(), self.codes.tolist(), self.values.tolist()
        for row, code, value in zip(*columns, strict=True):
            yield Metadata(row, names[code], value)

    @overload
    def __getitem__(self, index: int) -> Metadata: ...
    @overload
    def __getitem__(self, index: slice) -> MetadataLog: ...
    def __getitem__(self, index: int | slice) -> Metadata | MetadataLog:
        if isinstance(index, slice):
            return MetadataLog.of([self[row] for row in range(*index.indices(len(self)))])
        row, code, value = self.rows[index], self.codes[index], self.values[index]
        return Metadata(int(row), self.names[code], float(value))

    def split(self, prefix: str) -> tuple[MetadataLog, MetadataLog]:
        """Return the items whose names begin with `prefix`, such as "mask/", and the others."""
        begins = _beginning(self.names, prefix)
        if True not in begins:
            return NO_METADATA, self
        if False not in begins:
            return self, NO_METADATA
        return self._named(begins), self._named([not begin for begin in begins])

    def _named(self, chosen: Sequence[bool]) -> MetadataLog:
        """Return the items whose names are `chosen`, one flag for each name."""
        names = tuple(name for name, is_chosen in zip(self.names, chosen, strict=True) if is_chosen)
        items = np.flatnonzero(np.array(chosen)[self.codes])
        codes = (np.cumsum(chosen) - 1)[self.codes[items]]
        return MetadataLog(self.rows[items], names, codes, self.values[items])


def _beginning(names: tuple[str, ...], prefix: str) -> tuple[bool, ...]:
    """Return for each name whether it begins with `prefix`."""
    find = _known_beginning if len(names) <= _MOST_KNOWN else _found_beginning
    return find(names, prefix)


def _found_beginning(names: tuple[str, ...], prefix: str) -> tuple[bool, ...]:
    return tuple(name.startswith(prefix) for name in names)


_MOST_KNOWN = 64  # names that are kept, for they come again with every submit
_known_beginning = lru_cache(maxsize=256)(_found_beginning)


NO_METADATA = MetadataLog.of(())
"""The log of a submit without metadata."""
