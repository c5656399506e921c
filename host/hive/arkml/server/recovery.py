"""The contents of a log when it is opened, read past damaged records."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from arkml.base.files import read_plain
from arkml.base.loggers import SafeLogger
from arkml.errors import HiveError
from arkml.hive.protocol.rows import (
    Place,
    Record,
    end_of_damaged,
    find_record,
    segment_name,
)
from arkml.server.session_figures import SessionCounts, read_counts

_log = SafeLogger(__name__)

FIRST = 1
"""The number of the first segment of a log."""


@dataclass(slots=True)
class Segment:
    """A file of the log, with its number; `first` counts the rows of the run before it."""

    number: int
    first: int


@dataclass(slots=True)
class LogContents:
    """
    The contents of a log when it is opened.

    Attributes:
        segments: The segments, the oldest first.
        end: The position after the last record.
        rows: The number of rows since the run began.
        lost: The number of those rows that were acknowledged and cannot be read.
        counts: The counts of each session, by its index.

    """

    segments: list[Segment] = field(default_factory=list)
    end: Place = field(default_factory=lambda: Place(FIRST - 1, 0))
    rows: int = 0
    lost: int = 0
    counts: dict[int, SessionCounts] = field(default_factory=dict)


def recover(directory: Path, least: int) -> LogContents:
    """
    Read the log in a directory, cut off torn records at the ends of segments, return its contents.

    Blocks while it reads the whole log.

    Args:
        directory: The directory of the log.
        least: The number of rows that are known to have been acknowledged. Missing ones count as
            lost, and their numbers are not given again.

    Raises:
        OSError: The log cannot be read or written.

    """
    return _Recovery(directory).read(least)


class _Recovery:
    """
    One pass over all segments.

    `_is_counted` says whether the number of the next row is known. If the first segments were
    deleted, it is known from the first record on.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._is_counted = False
        self._contents = LogContents(counts=_read_counts(directory))
        self._known = {index: counts.acked for index, counts in self._contents.counts.items()}

    def read(self, least: int) -> LogContents:
        contents = self._contents
        paths = self._directory.glob("*.rows")
        numbers = sorted(int(path.stem) for path in paths if path.stem.isdecimal())
        self._is_counted = numbers[:1] == [FIRST]
        for number in numbers:
            self._read(number)
        least = max(least, sum(counts.rows for counts in contents.counts.values()))
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
        data = memoryview(read_plain(path, follow=False))
        offset, is_begun = 0, False
        while record := find_record(data, offset, len(data)):
            if record.start > offset:
                _log_damage(path, offset, record.start - offset)
            offset = record.end
            if self._is_known(record):
                continue
            self._add(record)
            if not is_begun:
                contents.segments.append(Segment(number, record.first))
                is_begun = True
        if not is_begun:
            contents.segments.append(Segment(number, contents.rows))
        if torn := len(bytes(data[offset:]).rstrip(b"\0")):
            _log_damage(path, offset, torn)
        end = end_of_damaged(data, offset, len(data))
        contents.end = Place(number, end)
        _cut(path, end)

    def _is_known(self, record: Record) -> bool:
        """Return whether the record's rows were read before: each number names one row."""
        return self._is_counted and record.first < self._contents.rows

    def _add(self, record: Record) -> None:
        contents = self._contents
        if self._is_counted:
            contents.lost += record.first - contents.rows
        self._is_counted = True
        contents.rows = record.first + record.header.rows
        if record.header.seq > self._known.get(record.session, 0):
            counts = contents.counts.get(record.session, SessionCounts())
            contents.counts[record.session] = counts.plus(record.header)


def _read_counts(directory: Path) -> dict[int, SessionCounts]:
    try:
        return read_counts(directory)
    except HiveError as error:
        _log.warning("the rows of each session are counted anew: %s", error)
        return {}


def _log_damage(path: Path, offset: int, size: int) -> None:
    _log.warning("%s: %d bytes after byte %d are damaged and skipped", path, size, offset)


def _cut(path: Path, size: int) -> None:
    if path.stat().st_size != size:
        os.truncate(path, size)
