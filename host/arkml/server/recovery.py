"""Finding out what a log holds, past what is damaged in it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from arkml.errors import HiveError
from arkml.hive.protocol.segments import (
    Place,
    Record,
    end_of_damaged,
    find_record,
    segment_name,
)
from arkml.server.log import FIRST, Contents, Log, Segment
from arkml.server.session_counts import Tally, read_tallies

_log = logging.getLogger(__name__)


def open_log(directory: Path, *, keep: int, segment: int, least: int = 0) -> Log:
    """
    Open the log in a directory, which is made if it is not there.

    Damaged records are passed over, and what is torn at the end of a segment is cut. At least
    `least` rows are known to have been acknowledged: those of them that are not there are lost, and
    their numbers are not given again. Blocks while it reads all of it. Raises OSError.
    """
    directory.mkdir(exist_ok=True)
    return Log(directory, _Recovery(directory).read(least), keep=keep, segment=segment)


class _Recovery:
    """
    One reading of all segments.

    `_is_counted` is whether the number of the next row is known: a log whose first segments are
    gone says it with its first record.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._is_counted = False
        self._contents = Contents(tallies=_tallies(directory))
        self._known = {index: tally.acked for index, tally in self._contents.tallies.items()}

    def read(self, least: int) -> Contents:
        contents = self._contents
        paths = self._directory.glob("*.rows")
        numbers = sorted(int(path.stem) for path in paths if path.stem.isdecimal())
        self._is_counted = numbers[:1] == [FIRST]
        for number in numbers:
            self._read(number)
        least = max(least, sum(tally.rows for tally in contents.tallies.values()))
        if contents.rows < least:
            contents.lost += least - contents.rows
            contents.rows = least
        if contents.lost:
            _log.error(
                "%s: %d acknowledged rows are lost, their records are damaged or missing",
                self._directory, contents.lost,
            )  # fmt: skip
        return contents

    def _read(self, number: int) -> None:
        contents, path = self._contents, self._directory / segment_name(number)
        data = memoryview(path.read_bytes())
        offset, is_begun = 0, False
        while record := find_record(data, offset, len(data)):
            if record.start > offset:
                _damaged(path, offset, record.start - offset)
            offset = record.end
            if self._is_known(record):
                continue
            self._take(record)
            if not is_begun:
                contents.segments.append(Segment(number, record.first))
                is_begun = True
        if not is_begun:
            contents.segments.append(Segment(number, contents.rows))
        if torn := len(bytes(data[offset:]).rstrip(b"\0")):
            _damaged(path, offset, torn)
        end = end_of_damaged(data, offset, len(data))
        contents.end = Place(number, end)
        _cut(path, end)

    def _is_known(self, record: Record) -> bool:
        """Return whether rows with these numbers came before: each number names one row."""
        return self._is_counted and record.first < self._contents.rows

    def _take(self, record: Record) -> None:
        contents = self._contents
        if self._is_counted:
            contents.lost += record.first - contents.rows
        self._is_counted = True
        contents.rows = record.first + record.header.rows
        if record.header.seq > self._known.get(record.session, 0):
            tally = contents.tallies.get(record.session, Tally())
            contents.tallies[record.session] = tally.and_also(record.header)


def _tallies(directory: Path) -> dict[int, Tally]:
    try:
        return read_tallies(directory)
    except HiveError as error:
        _log.warning("the rows of each session are counted anew: %s", error)
        return {}


def _damaged(path: Path, offset: int, size: int) -> None:
    _log.warning("%s: %d bytes after byte %d are damaged and passed over", path, size, offset)


def _cut(path: Path, size: int) -> None:
    if path.stat().st_size != size:
        os.truncate(path, size)
