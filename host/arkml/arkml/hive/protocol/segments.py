"""
Records of the log: acknowledged bodies of rows, one after the other in segments.

The columns of a body may be compressed by zstd. Its header is as it was then but for the magic, and
the size of what is stored lies between them.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from arkml.errors import ProtocolError
from arkml.hive.protocol.rows import HEADER_SIZE, MAGIC, Header, RowColumns, decode, parse_header

_PREFIX = struct.Struct("<4sIQIII4x")
PREFIX_SIZE = _PREFIX.size
_MAGIC = b"AKL2"
_BEGINNING = re.compile(_MAGIC)

_COMPRESSED = b"AKZ1"
"""The magic of the header of a body whose columns are compressed."""

_STORED = struct.Struct("<I")  # bytes of compressed columns
_LEVEL = 1  # a higher one takes several times as long, for a few percent


class Place(NamedTuple):
    """A position in the log: a segment's number, and an offset in bytes. Positions are ordered."""

    segment: int
    offset: int


class Record(NamedTuple):
    """
    One acknowledged body.

    `session` is the session's index in its run, `first` the number of the run's rows before this
    record. The record lies from the byte `start` of its segment up to the byte `end`.
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
    """Return a body as a record of the log, with `compress` by zstd if that makes it smaller."""
    if compress:
        import zstandard  # servers and learners alone need it

        columns = zstandard.ZstdCompressor(level=_LEVEL).compress(memoryview(body)[HEADER_SIZE:])
        head = _COMPRESSED + body[len(MAGIC) : HEADER_SIZE] + _STORED.pack(len(columns))
        body = min(body, head + columns, key=len)
    header = zlib.crc32(memoryview(body)[:HEADER_SIZE])
    parts = len(body), first, session, header
    return _PREFIX.pack(_MAGIC, *parts, _check(*parts)) + body


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
    """Return the first whole record that begins at `offset` or after it and ends by `until`."""
    while offset < until:
        record = read_record(data, offset)
        if record is not None and record.end <= until:
            return record
        offset = _after_damage(data, offset, until)
    return None


def read_records(data: memoryview, offset: int, until: int) -> Iterator[Record]:
    """Yield the whole records from `offset` up to the byte `until`."""
    while record := find_record(data, offset, until):
        yield record
        offset = record.end


def end_of_damaged(data: memoryview, offset: int, until: int) -> int:
    """
    Return the end of the last record from `offset` on whose prefix is intact, `offset` if none is.

    All bytes from `offset` up to `until` are known to be damaged.
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
    if magic != _MAGIC or _check(size, first, session, header) != check:
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
