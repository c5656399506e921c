"""
The queues of the sessions of one guest, and the records by which its shim finds them.

A queue is a region of the columns that the shim fills and a policy answers.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EPISODE_ENDS, EpisodeState
from arkml.arrays import Marks
from arkml.batches import NO_METADATA, ROW, Batch, Floats, MetadataLog
from arkml.errors import ColumnsFull, GuestMemoryFull, TooManyRows, TooMuchMetadata
from arkml.runtime.columns.arena import Arena
from arkml.runtime.columns.metadata import read_log, require_log
from arkml.runtime.columns.slabs import Columns, Shape
from arkml.runtime.shim import control_block as at
from arkml.runtime.shim.control_block import Kind, Moved

Numbers = npt.NDArray[np.uint32]

_COUNT, _FOLLOWED = at.COUNT >> 2, at.FOLLOWED >> 2
_LIST, _SAID = at.LIST >> 2, at.SAID >> 2
_METADATA, _USED = at.METADATA >> 2, at.METADATA_USED >> 2


_SUBMITTED = (at.COUNT, at.ENDED, at.METADATA_USED, at.SUSPECT)
CLEARED = (*_SUBMITTED, at.FOLLOWED)
"""Fields of a record that are zero for a queue without rows that were not submitted."""

_SAVED = (at.ROWS, at.FEATURES, at.GIVEN)
_SAVED_WORDS = (at.COUNT, at.ENDED, at.SUSPECT)
_FLOAT = 4  # bytes, as of each word
_NUMBERS = 3  # columns of words of a list of rows: rewards, begun, over
_MARKS = 3  # columns of bytes: started, terminated, truncated
_U32 = 0xFFFF_FFFF
_MOST_MOVED = 2 * Moved.LEFT


class SavedRows(NamedTuple):
    """
    A copy of the rows of one session that wait for a submit.

    Attributes:
        words: The number of rows, how many end an episode, and whether some features may not be
            finite.
        columns: The rows, their features and their given actions, as bytes.
        metadata: The log of the metadata of the rows.

    """

    words: tuple[int, ...]
    columns: tuple[bytes, ...]
    metadata: bytes


def require_rows(saved: SavedRows) -> None:
    """
    Raise ValueError for saved rows that no guest can have pushed, whatever its session declares.
    """
    count, ended, is_suspect = saved.words
    rows, features, given = saved.columns
    found = np.frombuffer(rows, ROW)
    width, rest = divmod(len(given), _FLOAT * count) if count else (0, 1)
    if rest or len(found) != count or len(saved.metadata) % _FLOAT:
        raise ValueError(f"{len(rows)} bytes of rows are not {count} rows")
    states = found["state"]
    ends = np.isin(states, EPISODE_ENDS)
    if (states >= len(EpisodeState)).any() or ended != np.count_nonzero(ends):
        raise ValueError(f"{ended} rows end an episode")
    if not np.isin(found["given"], (0, width)).all() or (found["moved"] >= _MOST_MOVED).any():
        raise ValueError("a row has actions of another width")
    if not is_suspect and not np.isfinite(np.frombuffer(features, np.float32)).all():
        raise ValueError("features are not finite, and are said to be")
    require_log(saved.metadata, found["metadata"])


class Records:
    """
    The records of one guest's sessions in column memory, by handle index.

    The guest's control block has their offset and their number, which is zero before the first
    session is opened.
    """

    __slots__ = (
        "_arena", "_capacity", "_limit", "control", "offset", "regions", "require", "used",
    )  # fmt: skip

    def __init__(self, arena: Arena, control: int, limit: int) -> None:
        self._limit = limit
        self.used = 0
        """Bytes of column memory that are charged to the guest."""
        self.require: Callable[[int], None] | None = None
        """Raises GuestMemoryFull if as many more bytes are over the guest's limit."""
        self._arena = arena
        self.control = control
        self._capacity = self.offset = 0
        self.regions: dict[int, Region] = {}
        """The queues of the open sessions, by the index of their records."""

    def open(self, index: int) -> None:
        """Make room for the record of handle index `index`. Raises ColumnsFull."""
        if index >= self._capacity:
            self._resize(1 << index.bit_length())

    def start(self, index: int) -> int:
        """Return the index, in the arena's u32 words, of the first word of a record."""
        return (self.offset + index * at.RECORD_SIZE) >> 2

    def charge(self, size: int) -> None:
        """
        Charge `size` bytes of column memory to the guest, or credit them if negative.

        Raises ColumnsFull or GuestMemoryFull if the limit would be exceeded.
        """
        if self.used + size > self._limit and size > 0:
            raise ColumnsFull(
                f"the sessions of one guest need {self.used + size} bytes of column memory,"
                f" over the limit of {self._limit}"
            )
        if size > 0 and self.require is not None:
            self.require(size)
        self.used += size

    def release(self) -> None:
        """Free the memory of the records. Safe to call twice."""
        capacity, self._capacity = self._capacity, 0
        self._free(self.offset, capacity)

    def _resize(self, capacity: int) -> None:
        offset = self._arena.allocate(capacity * at.RECORD_SIZE)
        former, count = self.offset, self._capacity
        ctypes.memmove(self._arena.base + offset, self._arena.base + former, count * at.RECORD_SIZE)
        self.offset, self._capacity = offset, capacity
        words = self._arena.words
        words[(self.control + at.RECORDS) >> 2] = offset
        words[(self.control + at.RECORD_COUNT) >> 2] = capacity
        for region in self.regions.values():
            region.locate()
        self._free(former, count)  # last: nothing names it any more, whatever a handler cuts off

    def _free(self, offset: int, capacity: int) -> None:
        if capacity:
            self._arena.free(offset, capacity * at.RECORD_SIZE)


class Rules(NamedTuple):
    """
    What each transition of an agent means; each field is a set in which bit k is transition k.

    The number of a transition is the row's state, plus 4 if no agent is live under its id: 7, for
    example, is the state Initial (3) of a new agent.

    Attributes:
        started: Transitions that report the start of an episode.
        terminated: Transitions that report the termination of an episode.
        truncated: Transitions that report the truncation of an episode.
        over: Transitions after which no agent is live.
        unlisted: Transitions that the shim cannot list; a submit with one is not listed at all.

    """

    started: int
    terminated: int
    truncated: int
    over: int
    unlisted: int


class Listed(NamedTuple):
    """
    The n listed rows of a submit, each of the agent with this row index before, or of a new agent.

    The arrays are views, valid until the guest is resumed.

    Attributes:
        rewards: float32, [n].
        started: bool, [n], True for rows that report the start of an episode.
        terminated: bool, [n], True for rows that report the termination of an episode.
        truncated: bool, [n], True for rows that report the truncation of an episode.
        begun: uint32, [m], the indices of rows that start an episode.
        over: uint32, [m], the indices of rows after which their agent is not live.
        highest: The highest agent id so far.
        is_rewarded: False if no row that starts an episode has a reward.

    """

    rewards: Floats
    started: Marks
    terminated: Marks
    truncated: Marks
    begun: Numbers
    over: Numbers
    highest: int
    is_rewarded: bool


class RowList:
    """A block of column memory in which the shim lists up to `capacity` rows of one session."""

    def __init__(self, arena: Arena, capacity: int, rules: Rules) -> None:
        self._arena = arena
        self._words = arena.words
        self.size: int = list_bytes(capacity)
        self.offset: int = arena.allocate(self.size)
        self.highest: int = (self.offset + at.LIST_HIGHEST) >> 3
        """The index, in the arena's numbers, of the id that those of new agents must exceed."""
        self._start = self.offset >> 2
        rewards, begun, over, marks = at.list_columns(capacity)
        self._rewards = arena.array(self.offset + rewards, capacity, np.float32)
        self._begun = arena.array(self.offset + begun, capacity, np.uint32)
        self._over = arena.array(self.offset + over, capacity, np.uint32)
        reports = arena.array(self.offset + marks, _MARKS * capacity, np.uint8)
        self._reports: Marks = reports.view(np.bool_).reshape(_MARKS, capacity)
        self._count = capacity  # of the rows that `_shown` has
        self._shown: tuple[Floats, Marks, Marks, Marks] = self._rewards, *self._reports
        for field, rule in zip(at.LIST_RULES, rules, strict=True):
            self._words[self._start + (field >> 2)] = rule

    def rows(self, count: int, submits: int) -> Listed | None:
        """
        Return the listed rows of a submit, or None if they are not listed.

        `count` is the number of rows, `submits` the number of submits answered before.
        """
        words, start = self._words, self._start
        if words[start + (at.LISTED >> 2)] != submits + 1 & _U32:
            return None
        if count != self._count:
            self._count = count
            self._shown = self._rewards[:count], *self._reports[:, :count]
        return Listed(
            *self._shown,
            self._begun[: words[start + (at.LIST_BEGUN >> 2)]],
            self._over[: words[start + (at.LIST_OVER >> 2)]],
            self._arena.numbers[self.highest],
            words[start + (at.LIST_REWARDED >> 2)] != 0,
        )

    def free(self) -> None:
        """Free the block of column memory."""
        self._arena.free(self.offset, self.size)


def list_bytes(capacity: int) -> int:
    """Return the bytes of a list of `capacity` rows."""
    return at.LIST_HEADER + (_NUMBERS * _FLOAT + _MARKS) * capacity


class Region:
    """
    The queue of rows of one session: a part of a slab, and the record by which the shim finds it.

    `index` is that of the record. `key` identifies the session in its batches. `released` is called
    with the index when the queue is closed.
    `slab` and `number` change when the region moves, for example to make room for more rows.
    """

    __slots__ = (
        "_cached", "_columns", "_index", "_is_given", "_list", "_metadata", "_records", "_released",
        "_words", "keys", "number", "record", "session", "slab",
    )  # fmt: skip

    def __init__(
        self,
        columns: Columns,
        records: Records,
        index: int,
        shape: Shape,
        key: int,
        *,
        released: Callable[[int], object] | None = None,
    ) -> None:
        self._columns = columns
        self._words = columns.arena.words
        self._records = records
        self._index = index
        self._released = released
        records.open(index)
        columns.version += 1  # the guest's other records may have moved, also where no region fits
        self.locate()
        self.session: Any = None
        """What a submit of the queue is answered by, once the owner of the queue has found it."""
        records.charge(shape.region_bytes())
        try:
            self.slab, self.number = columns.take(shape)
        except ColumnsFull:
            records.charge(-shape.region_bytes())
            raise
        self._is_given = False
        self.keys = np.uint64(key)
        self._cached: Batch | None = None
        self._metadata = (0, 0)
        self._list: RowList | None = None
        records.regions[index] = self

    def count(self) -> int:
        """Return the number of rows pushed since the last submit."""
        return self._words[self._word(at.COUNT)]

    def count_word(self) -> int:
        """Return the index, in the arena's u32 words, of the number of pushed rows."""
        return self.record + _COUNT

    def locate(self) -> None:
        """Find the record again after the records have moved."""
        self.record = self._records.start(self._index)
        """The index of the first word of the session's record in the arena's words."""

    def _word(self, field: int) -> int:
        """Return the index of the record's field in the arena's words."""
        return self.record + (field >> 2)

    def rows(self) -> slice:
        """Return the pushed rows as a slice of the slab's columns."""
        start = self.number * self.slab.shape.rows
        return slice(start, start + self.count())

    def batch(self) -> Batch:
        """
        Return the pushed rows as views; the object is reused while the number of rows is the same.
        """
        count = self._words[self.record + _COUNT]
        cached = self._cached
        if cached is not None and len(cached.rows) == count:
            return cached
        start = self.number * self.slab.shape.rows
        self._cached = self.slab.batch(start, start + count, self.keys)
        return self._cached

    def forget_scratch(self) -> None:
        """
        Drop the object `scratch` that a policy keeps with the batch, before another one answers.
        """
        if self._cached is not None:
            self._cached.scratch = None

    def metadata(self) -> MetadataLog:
        """Return the metadata of the rows, in push order."""
        words, record = self._words, self.record
        used = words[record + _USED] >> 2
        if not used:
            return NO_METADATA
        start, names = words[record + _METADATA] >> 2, self._columns.names
        log = self._columns.arena.word_array[start : start + used]
        if number := words[record + _SAID]:
            return names.read(number, log)
        words[record + _SAID] = names.of(log)
        return read_log(log, self.batch().rows["metadata"])

    def checksums(self) -> tuple[int, int, int]:
        """
        Return three checksums: of rows, of features, and of given actions with metadata.

        The field `moved` of rows is left out, because it depends on the host's use of `follow`.
        """
        batch, words, record, others = self.batch(), self._words, self.record, 0
        if used := words[record + _USED]:
            start = self._columns.arena.base + words[record + _METADATA]
            others = zlib.crc32(ctypes.string_at(start, used))
        given = batch.pushed_actions
        if given is not None and (chosen := batch.rows["given"] != 0).any():
            others = zlib.crc32(
                given[chosen].data, others
            )  # the rest of the column is of other submits
        rows = batch.rows.copy()
        rows["moved"] = 0
        return zlib.crc32(rows.data), zlib.crc32(batch.features.data), others

    def mentions(self, text: bytes) -> bool:
        """Return whether the bytes of the metadata contain a text, such as b"mask/"."""
        words, record = self._words, self.record
        used = words[record + _USED] >> 2
        if not used:
            return False
        start = words[record + _METADATA] >> 2
        return text in self._columns.arena.word_array[start : start + used].tobytes()

    def follow(self, highest: int | None, rules: Rules) -> None:
        """
        Have the shim compare the next submit's rows with the present ones, and list them.

        The shim marks the rows by `rules`. It lists them only if new agents have ids above
        `highest`; None turns comparison off. Later submits are compared as well, until `clear`, but
        not listed (decision 24).
        """
        start = self.record
        if highest is None:
            self._words[start + _FOLLOWED] = 0
            return
        if self._list is None:
            self._make_list(rules)
        if self._list is not None:
            self._columns.arena.numbers[self._list.highest] = highest
            self._words[start + _LIST] = self._list.offset
        self._words[start + _FOLLOWED] = self._words[start + _COUNT]

    def listed(self) -> Listed | None:
        """Return the list that the shim made of the rows of this submit, or None."""
        words, start = self._words, self.record
        count = words[start + _COUNT]
        if self._list is None or words[start + _FOLLOWED] != count:
            return None
        return self._list.rows(count, words[(self._records.control + at.SUBMITS) >> 2])

    def end_submit(self) -> None:
        """Empty the queue after its submit was answered."""
        self._set_zero(_SUBMITTED)

    def clear(self) -> None:
        """Discard the queued rows that were not submitted."""
        self._set_zero(CLEARED)

    def _set_zero(self, fields: Sequence[int]) -> None:
        for field in fields:
            self._words[self._word(field)] = 0

    def publish(self, handle: int, kind: Kind) -> None:
        """Write the session's record, after which the shim accepts `handle`."""
        shape = self.slab.shape
        self._place()
        for field, value in (
            (at.KIND, kind),
            (at.NUM_FEATURES, shape.num_features),
            (at.NUM_ACTIONS, shape.num_actions),
        ):
            self._words[self._word(field)] = value
        self._columns.arena.numbers[self._word(at.HANDLE) // 2] = handle

    def grow(self, rows: int, metadata_bytes: int) -> None:
        """
        Make room for `rows` rows and `metadata_bytes` of metadata, keeping the queued rows.

        Raises TooManyRows, TooMuchMetadata or ColumnsFull.
        """
        limits = self._columns.limits
        if rows > limits.rows:
            raise TooManyRows(f"a batch of {rows} rows is over the limit of {limits.rows}")
        if metadata_bytes > limits.metadata_bytes:
            raise TooMuchMetadata(
                f"a batch with {metadata_bytes} bytes of metadata is over the limit of"
                f" {limits.metadata_bytes}"
            )
        shape = self.slab.shape
        if rows > shape.rows:
            self.move(self._columns.grown_rows(shape, rows))
        if metadata_bytes > self._metadata[1]:
            self._grow_metadata(metadata_bytes)

    def move(self, capacity: int) -> None:
        """Move the queue and its rows to a region of `capacity` rows. Raises ColumnsFull."""
        self._free_list()  # before more is charged: what can do without it comes first
        old, old_rows, shape = self.slab, self.rows(), self.slab.shape
        new = shape.of(capacity)
        more = new.region_bytes() - shape.region_bytes()
        self._records.charge(more)
        try:
            slab, number = self._columns.take(new)
        except ColumnsFull:
            self._records.charge(-more)
            raise
        start = number * capacity
        for field in (at.ROWS, at.FEATURES, at.GIVEN):
            source = old.view(field, old_rows.start, old_rows.stop)
            if source is not None:
                slab.view(field, start, start + len(source))[:] = source
        number, self.number, self.slab = self.number, number, slab
        self._place()
        self._columns.give(old, number)  # last: nothing names it any more

    def save(self) -> SavedRows | None:
        """Return a copy of the rows that wait for a submit, or None."""
        count = self.count()
        if not count:
            return None
        words, rows = self._words, self.rows()
        used = words[self._word(at.METADATA_USED)]
        start = self._columns.arena.base + words[self._word(at.METADATA)]
        views = [self.slab.view(field, rows.start, rows.stop) for field in _SAVED]
        return SavedRows(
            tuple(words[self._word(field)] for field in _SAVED_WORDS),
            tuple(b"" if view is None else view.tobytes() for view in views),
            ctypes.string_at(start, used) if used else b"",
        )

    def load(self, saved: SavedRows | None) -> None:
        """
        Replace the queued rows by saved ones, or by none.

        Raises TooManyRows, TooMuchMetadata or ColumnsFull, and ValueError for columns of another
        size.
        """
        self.clear()
        if saved is None:
            return
        count = saved.words[0]
        self.grow(count, len(saved.metadata))
        start = self.number * self.slab.shape.rows
        for field, content in zip(_SAVED, saved.columns, strict=True):
            view = self.slab.view(field, start, start + count)
            if view is not None:
                view[...] = np.frombuffer(content, view.dtype).reshape(view.shape)
        if saved.metadata:
            place = self._columns.arena.base + self._words[self._word(at.METADATA)]
            ctypes.memmove(place, saved.metadata, len(saved.metadata))
        self._words[self._word(at.METADATA_USED)] = len(saved.metadata)
        for field, value in zip(_SAVED_WORDS, saved.words, strict=True):
            self._words[self._word(field)] = value

    def close(self) -> None:
        """
        Free the region and its record; the shim no longer accepts the handle.

        After a signal handler has interrupted it, `close` may be called again: nothing is freed
        twice.
        """
        self._free_list()
        self._columns.arena.numbers[self._word(at.HANDLE) // 2] = 0
        for field in range(at.KIND, at.RECORD_SIZE, 4):
            self._words[self._word(field)] = 0
        (offset, size), self._metadata = self._metadata, (0, 0)
        if size:
            self._columns.arena.free(offset, size)
        if not self._is_given:
            self._is_given = True
            self._columns.give(self.slab, self.number)
            self._records.charge(-self.slab.shape.region_bytes() - size)
        self._records.regions.pop(self._index, None)
        self.session = None
        if self._released is not None:
            self._released(self._index)

    def _place(self) -> None:
        slab = self.slab
        start = self.number * slab.shape.rows
        self._cached = None
        slab.view(at.VALUES, start, start + slab.shape.rows)[:] = 0
        self._words[self._word(at.CAPACITY)] = slab.shape.rows
        self._words[self._word(at.FOLLOWED)] = 0
        for field in slab.fields():
            self._words[self._word(field)] = slab.offset(field, start)

    def _make_list(self, rules: Rules) -> None:
        """Make a list for the rows; without room for it, rows are not listed."""
        capacity = self.slab.shape.rows
        size = list_bytes(capacity)
        try:
            self._records.charge(size)
        except (ColumnsFull, GuestMemoryFull):
            return
        try:
            self._list = RowList(self._columns.arena, capacity, rules)
        except ColumnsFull:
            self._records.charge(-size)

    def _free_list(self) -> None:
        if self._list is not None:
            self._words[self._word(at.LIST)] = 0
            rows, self._list = self._list, None
            rows.free()
            self._records.charge(-rows.size)

    def _grow_metadata(self, size: int) -> None:
        arena = self._columns.arena
        size = max(1024, 1 << (size - 1).bit_length())
        old, old_size = self._metadata
        self._records.charge(size - old_size)
        try:
            offset = arena.allocate(size)
        except ColumnsFull:
            self._records.charge(old_size - size)
            raise
        if old_size:
            used = self._words[self._word(at.METADATA_USED)]
            ctypes.memmove(arena.base + offset, arena.base + old, used)
        self._metadata = (offset, size)
        self._words[self._word(at.METADATA)] = offset
        self._words[self._word(at.METADATA_CAPACITY)] = size
        if old_size:
            arena.free(old, old_size)
