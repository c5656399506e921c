"""Rows on their way out: written by the thread of the frames, read by the thread of the client."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.hive.protocol.rows import META, NO_ROW, Columns, Kind, payload_size
from arkml.hive.protocol.runs import BATCH_ROWS, BATCH_SECONDS

MAX_BYTES = 64 << 20
"""Rows beyond so many bytes are given up, the oldest first."""

_MAX_NOTES = 1 << 16
_POOL = 8  # chunks that are kept for later


class _Chunk:
    """
    Room for so many rows of one kind.

    The writer moves `filled` on after it has written, the reader `taken` after it has read. A
    chunk that `is_over` gets no more rows. `first` is how many rows were appended before its own.
    """

    __slots__ = ("columns", "filled", "first", "is_over", "kind", "taken")

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    def reset(self, kind: Kind, first: int) -> None:
        self.kind = kind
        self.first = first
        self.filled = self.taken = 0
        self.is_over = False


class Outbox:
    """
    A queue of rows for one writer and one reader, without a lock.

    The writer calls `begin`, `append`, `note` and `end`, the reader everything else, and `end` too
    for a writer that does not go on. What each of
    them writes, the other one only reads; single assignments and the ends of a deque are atomic.
    The writer calls `wake` when a body is full, and `pause` with the rows of a frame, once in
    BATCH_SECONDS at most. Rows between `begin` and `end` are not taken before `end`: their metrics
    come after them, and go out with them.
    """

    def __init__(
        self,
        features: int,
        actions: int,
        *,
        wake: Callable[[], object],
        pause: Callable[[], object],
        max_bytes: int = MAX_BYTES,
        rows: int = BATCH_ROWS,
    ) -> None:
        self.appended = 0
        """Rows that were appended and not refused at once. Written by the writer."""
        self._refused = 0  # by the writer
        self._given_up = 0  # by the reader
        self._told = 0  # of both, what was told to the hive
        self._released = 0
        self._features = features
        self._actions = actions
        self._rows = rows
        self._wake = wake
        self._pause = pause
        self._due = 0.0  # when to say again that a frame is over
        row_bytes = payload_size(1, features, actions, 0)
        self._limit = max(rows, max_bytes // row_bytes)
        self._open: _Chunk | None = None
        self._begun: int | None = None  # rows before those whose metrics may still come
        self._seen: int | None = None  # `_begun` as the reader saw it last
        self._is_full = False  # whether a body became full since `begin`
        self._last = (0, 0)  # the rows that were taken last: the first, and the one after them
        self._chunks: deque[_Chunk] = deque()
        self._free: deque[_Chunk] = deque()
        self._notes: deque[tuple[int, str, float]] = deque(maxlen=_MAX_NOTES)

    def begin(self) -> None:
        """Announce rows whose metrics are noted after they were appended."""
        self._begun = self.appended

    def end(self) -> None:
        """Release the rows since `begin`: all of their metrics were noted."""
        self._begun = None
        if self._is_full:
            self._is_full = False
            self._wake()

    def end_stale(self) -> None:
        """Release the rows since a `begin` that was the last one at the last call already."""
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
        kind: Kind = Kind.TRAINING,
    ) -> None:
        """
        Copy n rows, or those marked in `keep`, bool, [n]. Never blocks.

        agent, step, reward, state: [n]. features: [n, F]. action: [n, A].
        """
        if keep is not None:
            agent, step, reward, state = agent[keep], step[keep], reward[keep], state[keep]
            features, action = features[keep], action[keep]
        count, done = len(agent), 0
        while done < count:
            chunk = self._open
            if chunk is None or chunk.kind is not kind:
                chunk = self._begin(kind)
                if chunk is None:
                    self._refused += count - done
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
            columns.features[start:end] = features[done:to]
            columns.action[start:end] = action[done:to]
            self.appended += size
            chunk.filled = end
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

    def note(self, items: Iterable[tuple[int, str, float]]) -> None:
        """Send metrics along: how many rows were appended before theirs, or NO_ROW; name, value."""
        there = self.appended  # what comes after was refused
        self._notes.extend(
            (row if row < there else NO_ROW, name, value) for row, name, value in items
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be taken."""
        return all(chunk.filled == chunk.taken for chunk in self._chunks)

    @property
    def outstanding(self) -> int:
        """Rows that were appended and are neither settled nor given up."""
        return self.appended - self._released

    @property
    def dropped(self) -> int:
        """Rows that were given up."""
        return self._refused + self._given_up

    def untold(self) -> int:
        """Rows that were given up since the last call."""
        told, self._told = self._told, self.dropped
        return self._told - told

    def take(self, *, partial: bool) -> tuple[Kind, Columns] | None:
        """
        The oldest rows, of a full body or with `partial` of any, or None.

        The columns are views, which `take` and `trim` end. Their meta is empty: see `take_notes`.
        """
        while self._chunks:
            chunk = self._chunks[0]
            is_over = chunk.is_over  # before `filled`: what is over gets no more rows
            filled = chunk.filled
            begun = self._begun  # after `filled`: rows are appended after it was written
            end = filled if begun is None else max(chunk.taken, min(filled, begun - chunk.first))
            if end > chunk.taken and (partial or (is_over and end == filled)):
                return self._taken(chunk, end)
            if not is_over or chunk.taken < filled:
                return None
            self._recycle()
        return None

    def _taken(self, chunk: _Chunk, end: int) -> tuple[Kind, Columns]:
        rows = slice(chunk.taken, end)
        rows_of = (array[rows] for array in chunk.columns.arrays()[:-1])
        chunk.taken = end
        self._last = chunk.first + rows.start, chunk.first + end
        return chunk.kind, Columns(*(*rows_of, _NO_META))

    def take_notes(self) -> list[tuple[int, str, float]]:
        """Return the metrics of the rows taken last: place of the row or NO_ROW, name, value."""
        first, end = self._last
        found = []
        while self._notes and ((row := self._notes[0][0]) < end or row == NO_ROW):
            _, name, value = self._notes.popleft()
            found.append((row - first if first <= row < end else NO_ROW, name, value))
        return found

    def release(self, rows: int) -> None:
        """So many of the rows that were taken are settled: at the hive, refused by it, or lost."""
        self._released += rows

    def trim(self) -> None:
        """Give up the oldest rows while there are too many."""
        while self.outstanding > self._limit and self._chunks:
            chunk = self._chunks[0]
            if not chunk.is_over:
                return
            lost = chunk.filled - chunk.taken
            chunk.taken = chunk.filled
            self._given_up += lost
            self._released += lost
            self._recycle()

    def _begin(self, kind: Kind) -> _Chunk | None:
        """A chunk for rows of a kind; None if far too many rows wait, and the reader is stuck."""
        if self.outstanding >= 2 * self._limit:
            return None
        if self._open is not None:
            self._open.is_over = True
        try:
            chunk = self._free.popleft()
        except IndexError:
            chunk = _Chunk(Columns.empty(self._rows, self._features, self._actions))
        chunk.reset(kind, self.appended)
        self._open = chunk
        self._chunks.append(chunk)
        return chunk

    def _recycle(self) -> None:
        chunk = self._chunks.popleft()
        if len(self._free) < _POOL:
            self._free.append(chunk)


_NO_META = np.zeros(0, META)
