"""The queue of rows to send, from the thread that plays frames to the client's thread."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.hive.protocol.parts import Part
from arkml.hive.protocol.row_split import RowSplit
from arkml.hive.protocol.rows import MAX_BODY, META, NO_ROW, RowColumns, RowKind, payload_size
from arkml.hive.protocol.runs import BATCH_ROWS, BATCH_SECONDS

MAX_BYTES = 64 << 20
"""The bytes of rows that may wait; beyond them the oldest rows are dropped."""

_MAX_NOTES = 1 << 16
_MOST_BYTES = MAX_BODY - (_MAX_NOTES * META.itemsize) - 1_024
"""Bytes of the rows of one body, with room for its header and as many metrics as may wait."""
_POOL = 8  # chunks that are kept for later

_Integers = npt.NDArray[np.int64]


class _Chunk:
    """
    A block of rows of one kind.

    The writer advances `filled` after it has written, the reader `taken` after it has read. A
    chunk that `is_over` gets no more rows. `first` is the number of rows appended before its own.
    """

    __slots__ = ("columns", "filled", "first", "is_over", "kind", "taken")

    def __init__(self, columns: RowColumns) -> None:
        self.columns = columns

    def reset(self, kind: RowKind, first: int) -> None:
        self.kind = kind
        self.first = first
        self.filled = self.taken = 0
        self.is_over = False


class _Masks:
    """
    The masked choices of the rows of one frame.

    rows: int64, [m], the row of each mask, as the number of rows appended before it, ascending.
    names: int64, [m], the number of each mask's name. `last` is the number of rows appended before
    the end of the frame; the writer lowers it if rows were refused.
    """

    __slots__ = ("last", "names", "rows")

    def __init__(self, rows: _Integers, names: _Integers, last: int) -> None:
        self.rows = rows
        self.names = names
        self.last = last


class Outbox:
    """
    A queue of rows for one writer and one reader, without a lock.

    The writer calls `begin`, `append`, `note` and `end`, the reader all other methods, and also
    `end` for a writer that stopped. Each field is written by one of them and only read by the
    other; assignments and operations on the ends of a deque are atomic. Rows that are appended
    after `begin` are not taken before `end`, so that metrics noted in between are sent with them.

    Args:
        features: Number of features of a row.
        actions: Number of actions of a row.
        wake: Called by the writer when enough rows for a body wait.
        pause: Called by the writer after the rows of a frame, once in BATCH_SECONDS at most.
        choices: Number of choices that a row may mask.
        max_bytes: Bytes of rows that may wait; beyond it the oldest rows are dropped.
        rows: Largest number of rows of a body.

    Attributes:
        max_rows: Number of rows that may wait, as many as fit `max_bytes`.

    """

    def __init__(
        self,
        features: int,
        actions: int,
        *,
        wake: Callable[[], object],
        pause: Callable[[], object],
        choices: int = 0,
        max_bytes: int = MAX_BYTES,
        rows: int = BATCH_ROWS,
    ) -> None:
        self.appended = 0
        """Number of rows that were appended and not refused at once. Written by the writer."""
        self._refused = 0  # by the writer
        self._dropped = 0  # by the reader
        self._non_finite = 0  # by the writer
        self._non_finite_taken = 0
        self._outside = 0  # by the writer
        self._outside_taken = 0
        self._reported = 0  # of both, those that `take_dropped` has returned
        self._released = 0
        self._split = RowSplit(features)
        self._actions = actions
        self._choices = choices
        self._most = rows, max_bytes
        self._wake = wake
        self._pause = pause
        self._due = 0.0  # time of the next call of `pause`
        self._fit()
        self._open: _Chunk | None = None
        self._begun: int | None = None  # rows before those whose metrics may still come
        self._seen: int | None = None  # `_begun` at the reader's last check
        self._is_full = False  # true if a body became full since `begin`
        self._last = (0, 0)  # the rows that were taken last: the first, and the one after them
        self._chunks: deque[_Chunk] = deque()
        self._free: deque[_Chunk] = deque()
        self._notes: deque[tuple[int, str, float]] = deque(maxlen=_MAX_NOTES)
        self._masks: deque[_Masks] = deque()

    def narrow(self, parts: Sequence[Part]) -> None:
        """
        Store the values of images as bytes from now on. Called before any row is appended.

        `parts` are the parts of a row's observation, of which images are some.
        """
        self._split = RowSplit(self._split.features, parts)
        self._fit()

    def _fit(self) -> None:
        """Set the rows of a body, and the rows that may wait, by their size."""
        split, (rows, max_bytes) = self._split, self._most
        widths = split.features, self._actions
        of_body = payload_size(1, *widths, self._choices, split.images)
        self._rows = max(1, min(rows, _MOST_BYTES // of_body))
        self.max_rows = max(self._rows, max_bytes // payload_size(1, *widths, 0, split.images))

    @property
    def body_rows(self) -> int:
        """Number of rows of a full body."""
        return self._rows

    def begin(self) -> None:
        """Hold back the rows that are appended from now on, until their metrics are noted."""
        self._begun = self.appended

    def end(self) -> None:
        """Release the rows since `begin`, now that all of their metrics are noted."""
        self._begun = None
        if self._is_full:
            self._is_full = False
            self._wake()

    def end_stale(self) -> None:
        """Release the rows since `begin` if `begin` was not called since the last `end_stale`."""
        seen, self._seen = self._seen, self._begun
        if seen is not None and seen == self._seen:
            self.end()

    def append(
        self,
        agent: npt.NDArray[Any],
        step: npt.NDArray[Any],
        version: int,
        reward: npt.NDArray[Any],
        state: npt.NDArray[Any],
        features: npt.NDArray[Any],
        action: npt.NDArray[Any],
        keep: npt.NDArray[np.bool_] | None = None,
        kind: RowKind = RowKind.TRAINING,
        *,
        masks: npt.NDArray[Any] | None = None,
    ) -> None:
        """
        Copy n rows into the queue, or only the rows marked in `keep`. Never blocks.

        Rows that are left out are counted if their features or their rewards are not finite.

        Args:
            agent: Id of the agent of each row, [n].
            step: Number of the row among the agent's rows, [n].
            version: The policy version that acted.
            reward: The reward that led to each row, [n].
            state: The state of the agent's episode, [n].
            features: The features of each row, [n, F].
            action: The actions of each row, [n, A].
            keep: bool, [n]: the rows to copy; None for all.
            kind: The use of the rows.
            masks: [n, choices], 0 for a masked choice, or None; for example, [1, 0, 1] forbids
                choice 1.

        """
        if keep is not None:
            finite = np.isfinite(features[~keep]).all(axis=1) & np.isfinite(reward[~keep])
            self._non_finite += int((~finite).sum())
            agent, step, reward, state = agent[keep], step[keep], reward[keep], state[keep]
            features, action = features[keep], action[keep]
            masks = None if masks is None else masks[keep]
        frame = None if masks is None else self._mask(masks)
        count, done = len(agent), 0
        while done < count:
            chunk = self._open
            if chunk is None or chunk.kind is not kind:
                chunk = self._begin(kind)
                if chunk is None:
                    self._refused += count - done
                    if frame is not None:
                        frame.last = self.appended
                    return
            start = chunk.filled
            size = min(count - done, self._rows - start)
            end, to = start + size, done + size
            columns = chunk.columns
            columns.agent[start:end] = agent[done:to]
            columns.step[start:end] = step[done:to]
            columns.version[start:end] = version
            columns.reward[start:end] = reward[done:to]
            columns.state[start:end] = state[done:to]
            self._outside += self._split.write(
                features[done:to], columns.features[start:end], columns.images[start:end]
            )
            columns.action[start:end] = action[done:to]
            self.appended += size
            chunk.filled = end  # after the columns: the reader takes rows up to here (decision 6)
            done = to
            if end == self._rows:
                chunk.is_over = True
                self._open = None
                if self._begun is None:
                    self._wake()
                else:
                    self._is_full = True
        now = time.monotonic()
        if now >= self._due:
            self._due = now + BATCH_SECONDS
            self._pause()

    def _mask(self, masks: npt.NDArray[Any]) -> _Masks:
        """Queue the masks of the next rows, float32, [n, choices], before the rows themselves."""
        rows, names = np.nonzero(masks == 0)
        frame = _Masks(rows + self.appended, names, self.appended + len(masks))
        if len(rows):
            self._masks.append(frame)
        return frame

    def note(self, items: Iterable[tuple[int, str, float]]) -> None:
        """
        Queue metrics of rows, each as (row, name, value).

        `row` is the number of rows that were appended before the metric's row, or NO_ROW for a
        metric that belongs to no row.
        """
        there = self.appended  # later rows were refused
        self._notes.extend(
            (row if row < there else NO_ROW, name, value) for row, name, value in items
        )

    @property
    def is_empty(self) -> bool:
        """True if no rows wait to be taken."""
        return all(chunk.filled == chunk.taken for chunk in self._chunks)

    @property
    def outstanding(self) -> int:
        """Number of rows that were appended and are neither settled nor dropped."""
        return self.appended - self._released

    @property
    def dropped(self) -> int:
        """Number of rows that were dropped."""
        return self._refused + self._dropped

    def take_dropped(self) -> int:
        """Return the number of rows that were dropped since the last call."""
        before, self._reported = self._reported, self.dropped
        return self._reported - before

    def take_non_finite(self) -> int:
        """Return the number of rows since the last call that were left out as not finite."""
        before, self._non_finite_taken = self._non_finite_taken, self._non_finite
        return self._non_finite_taken - before

    def take_outside(self) -> int:
        """Return the number of image values since the last call that were clipped to 0 to 255."""
        before, self._outside_taken = self._outside_taken, self._outside
        return self._outside_taken - before

    def take(self, *, partial: bool) -> tuple[RowKind, RowColumns] | None:
        """
        Return the oldest rows as columns, as many as a full body has; None if there are too few.

        With `partial`, fewer rows are enough, but at least one. The columns are views, valid until
        the next `take` or `trim`. They contain no metrics, which `take_notes` returns.
        """
        while self._chunks:
            chunk = self._chunks[0]
            is_over = chunk.is_over  # before `filled`: a chunk that is over gets no more rows
            filled = chunk.filled
            begun = self._begun  # after `filled`: rows are appended after it was written
            end = filled if begun is None else max(chunk.taken, min(filled, begun - chunk.first))
            if end > chunk.taken and (partial or (is_over and end == filled)):
                return self._taken(chunk, end)
            if not is_over or chunk.taken < filled:
                return None
            self._recycle()
        return None

    def _taken(self, chunk: _Chunk, end: int) -> tuple[RowKind, RowColumns]:
        rows = slice(chunk.taken, end)
        rows_of = (array[rows] for array in chunk.columns.arrays()[:-1])
        chunk.taken = end
        self._last = chunk.first + rows.start, chunk.first + end
        return chunk.kind, RowColumns(*(*rows_of, _NO_META))

    def take_notes(self) -> list[tuple[int, str, float]]:
        """
        Return the metrics of the rows taken last as (row, name, value), such as (3, "speed", 0.5).

        `row` counts from the first of these rows; it is NO_ROW for a metric that belongs to no row.
        """
        first, end = self._last
        notes = []
        while self._notes and ((row := self._notes[0][0]) < end or row == NO_ROW):
            _, name, value = self._notes.popleft()
            notes.append((row - first if first <= row < end else NO_ROW, name, value))
        return notes

    def take_masks(self) -> npt.NDArray[Any]:
        """
        Return the masks of the rows taken last as metrics: META, [m], each with its row's index.
        """
        first, end = self._last
        taken = []
        while self._masks and self._masks[0].rows[0] < end:
            frame = self._masks[0]
            start, stop = np.searchsorted(frame.rows, (first, min(end, frame.last)))
            items = np.ones(max(0, int(stop - start)), META)
            items["row"] = frame.rows[start:stop] - first
            items["name"] = frame.names[start:stop]
            taken.append(items)
            if frame.last > end:
                break  # the rest of its rows are taken next
            self._masks.popleft()
        return np.concatenate(taken) if taken else _NO_META

    def release(self, rows: int) -> None:
        """
        Note that `rows` of the rows taken are settled: accepted by the hive, refused or discarded.
        """
        self._released += rows

    def trim(self) -> None:
        """Drop the oldest rows while more wait than `max_rows`."""
        while self.outstanding > self.max_rows and self._chunks:
            chunk = self._chunks[0]
            if not chunk.is_over:
                return
            lost = chunk.filled - chunk.taken
            chunk.taken = chunk.filled
            self._dropped += lost
            self._released += lost
            self._recycle()

    def _begin(self, kind: RowKind) -> _Chunk | None:
        """Return a new chunk; None if the reader is stuck and twice `max_rows` rows wait."""
        if self.outstanding >= 2 * self.max_rows:
            return None
        if self._open is not None:
            self._open.is_over = True
        try:
            chunk = self._free.popleft()
        except IndexError:
            split = self._split
            columns = RowColumns.empty(
                self._rows, split.features, self._actions, images=split.images
            )
            chunk = _Chunk(columns)
        chunk.reset(kind, self.appended)
        self._open = chunk
        self._chunks.append(chunk)
        return chunk

    def _recycle(self) -> None:
        chunk = self._chunks.popleft()
        if len(self._free) < _POOL:
            self._free.append(chunk)


_NO_META = np.zeros(0, META)
