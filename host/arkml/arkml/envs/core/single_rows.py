"""Queues of many guests that hold one row each, read and written together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.arrays import Marks, are_all, every
from arkml.batches import NO_METADATA, ROW, Floats, MetadataLog
from arkml.runtime.columns.metadata import read_entries, read_log
from arkml.runtime.columns.region import Region
from arkml.runtime.columns.slabs import Columns, Slab
from arkml.runtime.lockstep import Frames
from arkml.runtime.rounds import Places
from arkml.runtime.shim import control_block as at

_TO_LOG = (at.METADATA - at.COUNT) >> 2  # words
_TO_USED = (at.METADATA_USED - at.COUNT) >> 2
_TO_SAID, _TO_VALUE = (at.SAID - at.COUNT) >> 2, (at.SAID_VALUE - at.COUNT) >> 2
_WORD = 4  # bytes


class FirstRows(NamedTuple):
    """
    Columns of the first row of each guest.

    All are arrays of [guests]: ids (uint64), rewards (float32), metadata (uint32, numbers of items)
    and moved (uint32; see `batches.ROW`).
    """

    ids: npt.NDArray[np.uint64]
    rewards: Floats
    metadata: npt.NDArray[np.uint32]
    moved: npt.NDArray[np.uint32]

    @staticmethod
    def of(rows: npt.NDArray[Any]) -> FirstRows:
        """Return the columns of one record per guest, of the dtype ROW, [guests], as views."""
        return FirstRows(rows["id"], rows["reward"], rows["metadata"], rows["moved"])


class SingleRows:
    """
    The first rows of many guests' queues, one queue for each guest.

    `regions` has None for a guest without a queue, which is skipped. The addresses are valid until
    a queue moves, which changes `Columns.version`.
    """

    def __init__(self, columns: Columns, regions: Sequence[Region | None]) -> None:
        self._words = columns.arena.word_array
        self._names = columns.names
        count = len(regions)
        self._counts = np.zeros(count, np.intp)
        self._has = np.zeros(count, bool)
        by_slab: dict[int, tuple[Slab, list[int], list[int]]] = {}
        for position, region in enumerate(regions):
            if region is None:
                continue
            self._counts[position] = region.count_word()
            self._has[position] = True
            _, rows, positions = by_slab.setdefault(id(region.slab), (region.slab, [], []))
            rows.append(region.rows().start)
            positions.append(position)
        self._is_whole = every(self._has)
        self._moves = [
            (slab, _indices(rows), _indices(some)) for slab, rows, some in by_slab.values()
        ]
        self._view = self._viewed()

    def are_single(self, positions: Places) -> bool:
        """Return whether each of these queues holds exactly one row, as in most steps."""
        is_there = self._is_whole or every(self._has[positions])
        return is_there and are_all(self._rows_in(positions), 1)

    def single(self, positions: Places) -> Marks:
        """
        Return which queues hold exactly one row, bool, [n]; `positions` are sorted and differ.
        """
        marks: Marks = self._rows_in(positions) == 1
        if not self._is_whole:
            marks &= self._has[positions]
        return marks

    def _rows_in(self, positions: Places) -> Frames:
        """Return the numbers of rows that queues hold, u32, [n]; anything without a queue."""
        is_all = len(positions) == len(self._counts)
        counts: Frames = self._words[self._counts if is_all else self._counts[positions]]
        return counts

    def rows(self) -> FirstRows:
        """Return the first rows, as views where possible; a guest without a queue has zeros."""
        if self._view is not None:
            return self._view
        copy = np.zeros(len(self._has), ROW)
        for slab, rows, positions in self._moves:
            copy[positions] = slab.view(at.ROWS)[rows]
        return FirstRows.of(copy)

    def metadata(self, positions: Places, counts: Frames) -> MetadataLog:
        """
        Return the metadata of first rows of some queues; row k of the log is queue `positions[k]`.

        positions: intp, [n]. counts: uint32, [n], the number of items of each row.
        """
        having = counts.nonzero()[0]
        if not len(having):
            return NO_METADATA
        at_counts = self._counts[positions[having]]
        numbers = self._words[at_counts + _TO_SAID].tobytes()
        one = numbers[:_WORD]
        if numbers == one * len(having) and (number := int.from_bytes(one, "little")):
            return self._names.items(number, having, self._words[at_counts + _TO_VALUE])
        return self._read_metadata(having, at_counts, counts)

    def _read_metadata(self, having: Places, at_counts: Places, counts: Frames) -> MetadataLog:
        """Return metadata that is not known yet; if all is of one name, the shims know it now."""
        starts = self._words[at_counts + _TO_LOG] >> 2
        sizes = self._words[at_counts + _TO_USED] >> 2
        size = int(sizes[0])
        if every(sizes == size):
            entries = self._words[starts[:, None] + np.arange(size)]
            entries[:, 0] = having  # the header of a guest's one entry begins with the row
            self._words[at_counts + _TO_SAID] = self._names.of(entries.ravel())
            found = read_entries(entries, having)
            if found is not None:
                return found
        pieces = zip(having.tolist(), starts.tolist(), (starts + sizes).tolist(), strict=True)
        parts = []
        for row, start, end in pieces:
            parts.append(self._words[start:end].copy())
            parts[-1][0] = row
        return read_log(np.concatenate(parts), counts)

    def read(self, features: Floats) -> None:
        """Copy the features of all first rows into an array, float32, [guests, num_features]."""
        for slab, rows, positions in self._moves:
            features[positions] = slab.view(at.FEATURES)[rows]

    def write(self, actions: Floats) -> None:
        """
        Write actions for all first rows, float32, [guests, num_actions]; their values stay zeros.
        """
        for slab, rows, positions in self._moves:
            slab.view(at.ACTIONS)[rows] = actions[positions]

    def _viewed(self) -> FirstRows | None:
        """Return the rows of all guests as views, None if they are not evenly spaced."""
        if len(self._moves) != 1 or not self._is_whole:
            return None
        slab, rows, _ = self._moves[0]
        return FirstRows.of(slab.view(at.ROWS)[rows]) if isinstance(rows, slice) else None


def _indices(numbers: list[int]) -> Any:
    """Return the indices, as a slice where they are evenly spaced."""
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    if step > 0 and numbers == list(range(numbers[0], numbers[0] + step * len(numbers), step)):
        return slice(numbers[0], numbers[-1] + 1, step)
    return np.array(numbers, np.intp)
