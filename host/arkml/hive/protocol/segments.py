"""Records of the log: bodies of rows as they were acknowledged, one after the other in segments."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from arkml.errors import ProtocolError
from arkml.hive.protocol.rows import HEADER_SIZE, Columns, Header, decode, parse_header

_PREFIX = struct.Struct("<4sIIIQ")
PREFIX_SIZE = _PREFIX.size
_MAGIC = b"AKL1"


class Place(NamedTuple):
    """A place in the log: the number of a segment and the bytes before it. Places are ordered."""

    segment: int
    offset: int


class Record(NamedTuple):
    """
    One acknowledged body. `session` is the session's index in its run.

    `first` is how many rows of the run came before it.
    """

    session: int
    first: int
    header: Header
    columns: Columns
    end: int


def segment_name(number: int) -> str:
    """The file of a segment."""
    return f"{number:010d}.rows"


def frame(body: bytes, *, session: int, first: int) -> bytes:
    """A body as a record."""
    size = len(body)
    check = zlib.crc32(struct.pack("<IIQ", size, session, first))
    return _PREFIX.pack(_MAGIC, size, session, check, first) + body


def read_record(data: memoryview, offset: int, *, check: bool) -> Record | None:
    """
    The record at `offset`; None at the end of what was written, or where it is torn.

    Columns are views of `data`. `check` compares the checksum of the rows too.
    """
    if offset + PREFIX_SIZE > len(data):
        return None
    magic, size, session, crc, first = _PREFIX.unpack_from(data, offset)
    if magic != _MAGIC or zlib.crc32(struct.pack("<IIQ", size, session, first)) != crc:
        return None
    start = offset + PREFIX_SIZE
    end = start + size
    if size < HEADER_SIZE or end > len(data):
        return None
    try:
        header = parse_header(data[start : start + HEADER_SIZE])
        columns = decode(header, data[start + HEADER_SIZE : end], check=check)
    except ProtocolError:
        return None
    return Record(session, first, header, columns, end)


def read_records(
    data: memoryview, offset: int, until: int, *, check: bool = False
) -> Iterator[Record]:
    """The records from `offset` up to the byte `until`."""
    while offset < until:
        record = read_record(data, offset, check=check)
        if record is None:
            return
        yield record
        offset = record.end
