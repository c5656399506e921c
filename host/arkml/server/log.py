"""The rows of one run on disk, in segments that are only appended to."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path

from arkml.files import sync_directory
from arkml.hive.protocol.rows import Header
from arkml.hive.protocol.segments import Place, frame, segment_name
from arkml.server.session_counts import Tally, write_tallies

FIRST = 1
"""The number of the first segment of a log."""

_MOST_KEPT = 4
"""Segments beyond the memory wait for a learner that has not read them, up to so many memories."""


@dataclass(slots=True)
class Segment:
    """A segment that is there. `first` is how many rows of the run came before it."""

    number: int
    first: int


@dataclass(slots=True)
class Contents:
    """
    What a log holds when it is opened: its segments, where they end, and who sent the rows.

    `lost` of the `rows` were acknowledged and cannot be read.
    """

    segments: list[Segment] = field(default_factory=list)
    end: Place = field(default_factory=lambda: Place(FIRST - 1, 0))
    rows: int = 0
    lost: int = 0
    tallies: dict[int, Tally] = field(default_factory=dict)


class Log:
    """
    The rows of one run.

    Rows are in the files when `append` returns, so they survive the end of any process; a power
    failure may take those since the last `sync`. `keep` rows are kept. One writer.
    """

    def __init__(self, directory: Path, contents: Contents, *, keep: int, segment: int) -> None:
        self._directory = directory
        self._keep = keep
        self._segment_bytes = segment
        self._segments = contents.segments
        self._end = contents.end
        self._allocated = 0
        self._current: int | None = None
        self._written: tuple[Path, tuple[int, int]] | None = None  # one, for all threads
        self._retired: list[int] = []
        self._synced = contents.end
        self._refused = self._refused_written = 0
        self.rows = contents.rows
        self.lost = contents.lost
        self.tallies = contents.tallies

    @property
    def end(self) -> Place:
        """The place after the last row."""
        return self._end

    def append(self, body: bytes, session: int, header: Header, refused: int) -> None:
        """
        Add a body that was checked; `header` is its own.

        Raises OSError if it cannot be written, and the log is as it was.
        """
        self._require_place()
        record = frame(body, session=session, first=self.rows)
        if self._current is None or self._end.offset + len(record) > self._allocated:
            self._roll(len(record))
        self._write(record)
        self._end = Place(self._end.segment, self._end.offset + len(record))
        self.rows += header.rows
        self.tallies[session] = self.tallies.get(session, Tally()).and_also(header, refused)
        self._refused += refused

    def _roll(self, need: int) -> None:
        number = self._end.segment + 1
        path = self._directory / segment_name(number)
        size = max(self._segment_bytes, need)
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(opened, 0, size)
        except OSError:
            os.close(opened)
            path.unlink()
            raise
        if self._current is not None:
            self._retired.append(self._current)
        self._current, self._allocated = opened, size
        self._written = path, _identity(os.fstat(opened))
        self._end = Place(number, 0)
        self._segments.append(Segment(number, self.rows))

    def _require_place(self) -> None:
        """Raise OSError if what is written would be in no directory any more, or in another one."""
        if self._written is None:
            return
        path, identity = self._written
        if _identity(path.stat()) != identity:
            raise FileNotFoundError(errno.ENOENT, "another file is in the place of the log", path)

    def _write(self, record: bytes) -> None:
        assert self._current is not None
        unwritten = memoryview(record)
        at = self._end.offset
        try:
            while unwritten:
                count = os.pwrite(self._current, unwritten, at)
                unwritten, at = unwritten[count:], at + count
        except OSError:
            # Half a record must not lie where the next, shorter one leaves it readable.
            os.ftruncate(self._current, self._end.offset)
            self._allocated = self._end.offset
            raise

    def sync(self) -> None:
        """
        Wait until the disk has what was appended. For a thread: one at a time.

        Raises OSError, also if the directory was removed; what failed is done again the next time.
        """
        self._require_place()
        retired = list(self._retired)
        for descriptor in retired:
            os.fdatasync(descriptor)
        if retired:
            sync_directory(self._directory)
            self._close_retired(len(retired))
        end, current = self._end, self._current  # in this order: rows may come meanwhile
        if current is not None and end != self._synced:
            os.fdatasync(current)
            self._synced = end
        refused = self._refused
        if refused != self._refused_written:  # of which the segments say nothing
            self.write_tallies()
            self._refused_written = refused

    def _close_retired(self, count: int) -> None:
        closed, self._retired[:count] = self._retired[:count], []
        for descriptor in closed:
            os.close(descriptor)

    def expired(self, reached: int) -> list[Segment]:
        """
        Segments that hold only rows beyond the memory, taken off the list of those that are kept.

        `reached` is the segment that the learner reads.
        """
        found: list[Segment] = []
        while len(self._segments) > 1:
            beyond = self.rows - self._segments[1].first
            unread = self._segments[0].number >= reached
            if beyond < self._keep * (_MOST_KEPT if unread else 1):
                break
            found.append(self._segments.pop(0))
        return found

    def remove(self, segments: list[Segment]) -> None:
        """Delete expired segments; who sent their rows is written down first. For a thread."""
        self.write_tallies()
        for segment in segments:
            (self._directory / segment_name(segment.number)).unlink(missing_ok=True)

    def write_tallies(self) -> None:
        """Write down who sent which rows."""
        write_tallies(self._directory, dict(self.tallies))

    def close(self) -> None:
        """Sync, and give back what was allocated and not used. Raises OSError."""
        try:
            self.sync()
        finally:
            self._close_retired(len(self._retired))
            if self._current is not None:
                os.ftruncate(self._current, self._end.offset)
                os.close(self._current)
                self._current = None
        self.write_tallies()


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
