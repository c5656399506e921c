"""
Rows on the wire and in the log.

A body of rows is a header of 64 bytes, then columns, each padded to 8 bytes. The log has records in
segments, one after the other: each is an acknowledged body behind a prefix. The columns of a record
may be compressed by zstd. Its header is as it was then but for the magic, and the size of what is
stored lies between them.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.batches import Floats
from arkml.errors import ProtocolError

CONTENT_TYPE = "application/x-arkml-rows"
MAGIC = b"AKR1"
VERSION = 1
MAX_ROWS = 65_536
MAX_BODY = 32 << 20
MAX_WIDTH = 1 << 16

_HEADER = struct.Struct("<4sHHQIIIIIIIIQII")
HEADER_SIZE = _HEADER.size

GUEST_SHIFT = 48
"""
With the setting `max_episode_steps`, the bits of an agent's id from this one on are the number of
its guest, since that limit cuts off the agents of a guest together.
"""

NO_ROW = (1 << 32) - 1
"""The row of a metric whose own row was dropped before it was sent."""

META = np.dtype([("row", "<u4"), ("name", "<u4"), ("value", "<f4")])

_PREFIX = struct.Struct("<4sIQIII4x")
PREFIX_SIZE = _PREFIX.size
_RECORD = b"AKL2"
_BEGINNING = re.compile(_RECORD)

_COMPRESSED = b"AKZ1"
"""The magic of the header of a body whose columns are compressed."""

_STORED = struct.Struct("<I")  # bytes of compressed columns
_LEVEL = 1  # a higher one takes several times as long, for a few percent


class RowKind(IntEnum):
    """The purpose of rows. An agent id with rows of two kinds stands for two agents."""

    TRAINING = 0
    DEMONSTRATION = 1
    AUGMENTED = 2


@dataclass(frozen=True, slots=True)
class Header:
    """
    The header of a body of rows.

    Attributes:
        seq: Number of the body in its session, from 1.
        rows: Number of rows.
        features: Number of features of a row, including values of images.
        actions: Number of actions of a row.
        kind: Purpose of the rows.
        metas: Number of metrics.
        dropped: Number of rows that the sender dropped before this body.
        crc: CRC-32 of the columns.
        payload: Bytes of the columns.
        sent_ns: The sender's monotonic clock, in nanoseconds.
        non_finite: Number of rows that were left out before this body because a number in them was
            not finite.
        images: Number of features of a row that are bytes.
        outside: Number of image values before this body that were clipped to 0 to 255.

    """

    seq: int
    rows: int
    features: int
    actions: int
    kind: RowKind = RowKind.TRAINING
    metas: int = 0
    dropped: int = 0
    crc: int = 0
    payload: int = 0
    sent_ns: int = 0
    non_finite: int = 0
    images: int = 0
    outside: int = 0


@dataclass(slots=True)
class RowColumns:
    """
    n rows of one session, in the order in which they were pushed.

    Attributes:
        agent: Id of each row's agent, uint64, [n].
        step: uint32, [n]: 0 for the state Initial, one more for each later row of the agent.
        version: uint32, [n]: the policy version that acted.
        reward: float32, [n]: the reward that led to this row.
        state: uint8, [n]: the numbers of EpisodeState.
        features: float32, [n, F], without features that are bytes.
        images: uint8, [n, B]: the values of all images, side by side.
        action: float32, [n, A]: chosen at this row, zero if the episode ended.
        meta: The metrics, dtype META, [m], each with the index of its row in these columns, or
            NO_ROW.

    """

    agent: npt.NDArray[np.uint64]
    step: npt.NDArray[np.uint32]
    version: npt.NDArray[np.uint32]
    reward: Floats
    state: npt.NDArray[np.uint8]
    features: Floats
    images: npt.NDArray[np.uint8]
    action: Floats
    meta: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.agent)

    @classmethod
    def empty(
        cls, rows: int, features: int, actions: int, metas: int = 0, *, images: int = 0
    ) -> RowColumns:
        """
        Return columns filled with zeros.

        Args:
            rows: Number of rows.
            features: Number of features of a row.
            actions: Number of actions of a row.
            metas: Number of metrics.
            images: Number of the features that are bytes.

        """
        columns = layout(rows, features, actions, images).columns
        arrays = [np.zeros(one.shape, one.dtype) for one in columns]
        return cls(*(*arrays, np.zeros(metas, META)))

    def take(self, chosen: slice | npt.NDArray[Any]) -> RowColumns:
        """
        Return the chosen rows, and their metrics with the new indices of their rows.

        chosen: a slice, or bool, [n].
        """
        kept = np.zeros(len(self), bool)
        kept[chosen] = True
        meta = self.meta[self.meta["row"] != NO_ROW]
        meta = meta[kept[meta["row"]]]
        meta["row"] = (np.cumsum(kept) - 1)[meta["row"]]
        return RowColumns(*(*(array[chosen] for array in self._rows()), meta))

    def _rows(self) -> tuple[npt.NDArray[Any], ...]:
        return (
            self.agent,
            self.step,
            self.version,
            self.reward,
            self.state,
            self.features,
            self.images,
            self.action,
        )

    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """Return the columns in the order of the wire, [rows, …] each, and then meta, [metas]."""
        return (*self._rows(), self.meta)


class BodyColumn(NamedTuple):
    """
    The layout of one column of a body.

    Attributes:
        dtype: Type of its numbers.
        shape: Shape of its array.
        size: Number of its numbers.
        at: Offset of its first byte in the payload.

    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    size: int
    at: int


class BodyLayout(NamedTuple):
    """The layouts of a body's columns, in their order on the wire, and the offset of their end."""

    columns: tuple[BodyColumn, ...]
    end: int


@lru_cache(maxsize=256)
def layout(rows: int, features: int, actions: int, images: int = 0) -> BodyLayout:
    """
    Return the layout of bodies of this size, such as 512 rows of 8 features and 2 actions.

    Args:
        rows: Number of rows.
        features: Number of features of a row.
        actions: Number of actions of a row.
        images: Number of the features that are bytes.

    """
    columns, at = [], 0
    for kind, width in (
        ("<u8", None),
        ("<u4", None),
        ("<u4", None),
        ("<f4", None),
        ("u1", None),
        ("<f4", features - images),
        ("u1", images),
        ("<f4", actions),
    ):
        dtype, count = np.dtype(kind), rows * (1 if width is None else width)
        shape = (rows,) if width is None else (rows, width)
        columns.append(BodyColumn(dtype, shape, count, at))
        at += _padded(count * dtype.itemsize)
    return BodyLayout(tuple(columns), at)


def payload_size(rows: int, features: int, actions: int, metas: int, images: int = 0) -> int:
    """
    Return the size of a body's columns in bytes.

    Args:
        rows: Number of rows.
        features: Number of features of a row.
        actions: Number of actions of a row.
        metas: Number of metrics.
        images: Number of the features that are bytes.

    """
    return layout(rows, features, actions, images).end + _padded(metas * META.itemsize)


def encode(
    columns: RowColumns,
    *,
    seq: int,
    kind: RowKind = RowKind.TRAINING,
    dropped: int = 0,
    sent_ns: int = 0,
    non_finite: int = 0,
    outside: int = 0,
) -> bytes:
    """
    Return rows as one body: a header and the columns.

    Args:
        columns: The rows.
        seq: Number of the body in its session, from 1.
        kind: Purpose of the rows.
        dropped: Rows that the sender dropped before this body.
        sent_ns: The sender's monotonic clock, in nanoseconds.
        non_finite: Rows that were left out before this body as not finite.
        outside: Values of images before this body that were clipped to 0 to 255.

    """
    parts: list[Any] = []
    crc = size = 0
    for array in columns.arrays():
        data = np.ascontiguousarray(array)
        filling = bytes(_padded(data.nbytes) - data.nbytes)
        parts += (data, filling)
        crc = zlib.crc32(filling, zlib.crc32(data.data, crc))
        size += data.nbytes + len(filling)
    head = _HEADER.pack(
        MAGIC,
        VERSION,
        kind,
        seq,
        len(columns),
        columns.features.shape[1] + columns.images.shape[1],
        columns.action.shape[1],
        len(columns.meta),
        dropped,
        crc,
        size,
        columns.images.shape[1],
        sent_ns,
        non_finite,
        outside,
    )
    return b"".join([head, *parts])


def parse_header(data: bytes | memoryview) -> Header:
    """
    Return the header at the start of a body, with its sizes checked against each other.

    Raises ProtocolError.
    """
    if len(data) < HEADER_SIZE:
        raise ProtocolError(
            f"rows begin with a header of {HEADER_SIZE} bytes, not with {len(data)} bytes"
        )
    magic, version, kind, seq, rows, features, actions, metas, dropped, crc, *rest = (
        _HEADER.unpack_from(data)
    )
    size, images, sent_ns, non_finite, outside = rest
    if magic != MAGIC or version != VERSION:
        raise ProtocolError(
            f"rows begin with {magic!r} version {version}: it takes {MAGIC!r} version {VERSION}"
        )
    if kind not in list(RowKind):
        raise ProtocolError(f"the kind of rows is {kind}: it takes 0, 1 or 2")
    if rows > MAX_ROWS or features > MAX_WIDTH or actions > MAX_WIDTH:
        raise ProtocolError(f"{rows} rows of {features} features and {actions} actions: too many")
    if images > features:
        raise ProtocolError(f"{images} of {features} features are bytes")
    expected = payload_size(rows, features, actions, metas, images)
    if size != expected or size + HEADER_SIZE > MAX_BODY:
        raise ProtocolError(
            f"{rows} rows and {metas} metrics take {expected} bytes, {MAX_BODY} at most;"
            f" the header says {size}"
        )
    return Header(
        seq, rows, features, actions, RowKind(kind), metas, dropped, crc, size, sent_ns, non_finite,
        images, outside,
    )  # fmt: skip


def decode(header: Header, payload: bytes | memoryview, *, check: bool = True) -> RowColumns:
    """
    Return the columns of a body as read-only views of `payload`.

    Args:
        header: The header of the body.
        payload: The bytes after the header.
        check: Whether to compare the checksum, too.

    Raises:
        ProtocolError: The columns do not match the header.

    """
    if len(payload) != header.payload:
        raise ProtocolError(f"a body of {len(payload)} bytes, its header says {header.payload}")
    if check and zlib.crc32(payload) != header.crc:
        raise ProtocolError("the checksum of the rows is wrong")
    arrays: list[npt.NDArray[Any]] = []
    columns, end = layout(header.rows, header.features, header.actions, header.images)
    for dtype, shape, count, at in columns:
        arrays.append(np.frombuffer(payload, dtype, count, at).reshape(shape))
    meta = np.frombuffer(payload, META, header.metas, end)
    if ((meta["row"] >= header.rows) & (meta["row"] != NO_ROW)).any():
        raise ProtocolError(f"a metric belongs to a row beyond the {header.rows} of its body")
    arrays.append(meta)
    return RowColumns(*arrays)


def _padded(size: int) -> int:
    return (size + 7) & ~7


class Place(NamedTuple):
    """A position in the log: a segment's number, and an offset in bytes. Positions are ordered."""

    segment: int
    offset: int


class Record(NamedTuple):
    """
    One acknowledged body in the log.

    Attributes:
        session: Index of the session in its run.
        first: Number of rows of the run before this record.
        header: Header of the body.
        columns: The rows.
        start: Offset of the record's first byte in its segment.
        end: Offset after its last byte.

    """

    session: int
    first: int
    header: Header
    columns: RowColumns
    start: int
    end: int


def segment_name(number: int) -> str:
    """Return the name of a segment's file, such as 0000000012.rows."""
    return f"{number:010d}.rows"


def frame(body: bytes, *, session: int, first: int, compress: bool = False) -> bytes:
    """
    Return a body as a record of the log.

    Args:
        body: The body.
        session: Index of the session in its run.
        first: Number of rows of the run before this record.
        compress: Whether to compress the columns by zstd, if that makes them smaller.

    """
    if compress:
        import zstandard  # servers and learners alone need it

        columns = zstandard.ZstdCompressor(level=_LEVEL).compress(memoryview(body)[HEADER_SIZE:])
        head = _COMPRESSED + body[len(MAGIC) : HEADER_SIZE] + _STORED.pack(len(columns))
        body = min(body, head + columns, key=len)
    header = zlib.crc32(memoryview(body)[:HEADER_SIZE])
    parts = len(body), first, session, header
    return _PREFIX.pack(_RECORD, *parts, _check(*parts)) + body


def read_record(data: memoryview, offset: int) -> Record | None:
    """
    Return the record at `offset`, or None at the end of the log and at damaged bytes.

    Its columns are views of `data`, or of a copy where they are compressed.
    """
    prefix = _prefix(data, offset)
    if prefix is None:
        return None
    size, first, session, check = prefix
    start = offset + PREFIX_SIZE
    end = start + size
    if end > len(data) or zlib.crc32(data[start : start + HEADER_SIZE]) != check:
        return None
    try:
        header, columns_at, stored = _parsed(data, start)
        if columns_at + stored != end:
            return None
        content = data[columns_at:end]
        if columns_at > start + HEADER_SIZE:
            content = memoryview(_decompressed(content, header.payload))
        columns = decode(header, content)
    except ProtocolError:
        return None
    return Record(session, first, header, columns, offset, end)


def find_record(data: memoryview, offset: int, until: int) -> Record | None:
    """
    Return the first whole record in a range of bytes, None if there is none.

    Args:
        data: The bytes of a segment.
        offset: Where the record may begin at the earliest.
        until: Where it may end at the latest.

    """
    while offset < until:
        record = read_record(data, offset)
        if record is not None and record.end <= until:
            return record
        offset = _after_damage(data, offset, until)
    return None


def read_records(data: memoryview, offset: int, until: int) -> Iterator[Record]:
    """
    Yield whole records that follow each other.

    Args:
        data: The bytes of a segment.
        offset: Where the first record begins.
        until: Where the last record ends at the latest.

    """
    while record := find_record(data, offset, until):
        yield record
        offset = record.end


def end_of_damaged(data: memoryview, offset: int, until: int) -> int:
    """
    Return the end of the last record whose prefix is intact, or `offset` if there is none.

    All bytes from `offset` up to `until` are known to be damaged.

    Args:
        data: The bytes of a segment.
        offset: Where to begin.
        until: Where to end.

    """
    end = offset
    while offset < until:
        prefix = _prefix(data, offset)
        if prefix is not None and offset + PREFIX_SIZE + prefix[0] <= until:
            end = offset + PREFIX_SIZE + prefix[0]
        offset = _after_damage(data, offset, until)
    return end


def _check(size: int, first: int, session: int, header: int) -> int:
    return zlib.crc32(struct.pack("<IQII", size, first, session, header))


def _prefix(data: memoryview, offset: int) -> tuple[int, int, int, int] | None:
    """Return size, first row, session and the header's checksum at `offset`; None if damaged."""
    if offset + PREFIX_SIZE > len(data):
        return None
    magic, size, first, session, header, check = _PREFIX.unpack_from(data, offset)
    if magic != _RECORD or _check(size, first, session, header) != check:
        return None
    return size, first, session, header


def _after_damage(data: memoryview, offset: int, until: int) -> int:
    """
    Return the position of the next possible record after a damaged one at `offset`.

    Both the prefix and the header behind it give the length of the record. Only if both are
    damaged, the bytes are searched for the beginning of a record; columns may contain such bytes
    by chance.
    """
    start = offset + PREFIX_SIZE
    if (prefix := _prefix(data, offset)) is not None:
        return min(start + prefix[0], until)
    try:
        _, columns_at, stored = _parsed(data, start)
    except ProtocolError:
        match = _BEGINNING.search(data, offset + 1, until)
        return until if match is None else match.start()
    return min(columns_at + stored, until)


def _parsed(data: memoryview, start: int) -> tuple[Header, int, int]:
    """Return the header of a body, and where its columns are and how many bytes they take."""
    head, columns_at = bytes(data[start : start + HEADER_SIZE]), start + HEADER_SIZE
    if not head.startswith(_COMPRESSED):
        header = parse_header(head)
        return header, columns_at, header.payload
    header = parse_header(MAGIC + head[len(MAGIC) :])
    size = data[columns_at : columns_at + _STORED.size]
    if len(size) < _STORED.size or (stored := _STORED.unpack(size)[0]) >= header.payload:
        raise ProtocolError("compressed columns have no size, or are not smaller")
    return header, columns_at + _STORED.size, stored


def _decompressed(content: memoryview, size: int) -> bytes:
    """Return compressed columns. Raises ProtocolError if they are not of this size."""
    import zstandard

    try:
        if zstandard.get_frame_parameters(content).content_size != size:
            raise ProtocolError(f"compressed columns are not of the {size} bytes of their header")
        return zstandard.ZstdDecompressor().decompress(content, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ProtocolError(f"compressed columns are damaged: {error}") from error
