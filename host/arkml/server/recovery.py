"""Finding out what a log holds, and cutting what a power failure left torn."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from arkml.hive.protocol.segments import Place, read_record, segment_name
from arkml.server.log import Contents, Log, Segment
from arkml.server.tallies import Tally, read_tallies

_log = logging.getLogger(__name__)


def open_log(directory: Path, *, keep: int, segment: int) -> Log:
    """
    The log in a directory, cut at the first record that is not whole.

    Blocks while it reads all of it. Raises OSError, or HiveError if its tallies are damaged.
    """
    return Log(directory, _recover(directory), keep=keep, segment=segment)


def _recover(directory: Path) -> Contents:
    tallies = read_tallies(directory)
    contents = Contents(tallies=tallies)
    known = {index: tally.acked for index, tally in tallies.items()}
    numbers = sorted(int(path.stem) for path in directory.glob("*.rows") if path.stem.isdigit())
    for position, number in enumerate(numbers):
        path = directory / segment_name(number)
        if not _read(path, number, contents, known):
            for later in numbers[position + 1 :]:
                # Emptied and not deleted: a learner's place in it must never name other rows.
                _cut(directory / segment_name(later), 0)
                contents.end = Place(later, 0)
            break
    if not contents.segments:
        contents.rows = sum(tally.rows for tally in tallies.values())
    return contents


def _read(path: Path, number: int, contents: Contents, known: dict[int, int]) -> bool:
    """Whether the segment is whole, and followed by the next."""
    data = memoryview(path.read_bytes())
    offset = 0
    while record := read_record(data, offset, check=True):
        if not contents.segments:
            contents.rows = record.first
        if record.first != contents.rows:
            break
        if offset == 0:
            contents.segments.append(Segment(number, record.first))
        tally = contents.tallies.get(record.session, Tally())
        if record.header.seq > known.get(record.session, 0):
            contents.tallies[record.session] = tally.and_also(record.header)
        contents.rows += record.header.rows
        offset = record.end
    whole = not any(data[offset : offset + 4])
    if not whole:
        _log.warning("%s is torn after %d bytes, what follows is cut", path.name, offset)
    contents.end = Place(number, offset)
    _cut(path, offset)
    return whole


def _cut(path: Path, size: int) -> None:
    if path.stat().st_size != size:
        os.truncate(path, size)
