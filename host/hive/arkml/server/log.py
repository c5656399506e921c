"""
The log of one run: its rows on disk, in segments that are only appended to.

Theory of operation

The log is the only store of a run's rows. The server appends to it, and the learner, another
process, reads it; a restarted learner fills its memory from it again. So the server acknowledges
rows without waiting for the learner, except in lockstep, and a learner can be killed at any time.

A host sends rows in bodies, which each session counts from 1. The server checks a body, removes the
rows that it refuses, and appends the rest as one record: a prefix, and the body with its own header
(`hive.protocol.rows`). The prefix has the size, the number of the first row in the run, the
index of the session, and checksums of itself and of the header; the header has a checksum of the
columns. Rows with parts, such as entities, grids and images, are compressed by zstd. A body is
appended once: if the session has passed its number, it is a repetition whose answer was lost, and
is acknowledged again.

A segment is a file with a number for a name, for example 0000000001.rows. Its space is allocated at
once, so it ends in zeros, which no reader takes for a record. When the next record does not fit, a
new segment begins; before that, `take` may refuse the space. A record lies in one segment. If a
write fails in the middle, the file is cut at the end of the last record: otherwise a shorter record
after it could leave a readable rest. If the file at the path is no longer the open one, because the
directory was replaced, appending fails: the rows would go to a deleted file.

When `append` returns, the kernel has the rows: they survive the end of every process, and the body
is acknowledged. `sync` waits for the disk. The event loop appends and a thread syncs, twice a
second, so no request waits for the disk; a power failure may lose the rows since the last sync.
`sync` also writes the counts of each session if rows were refused, as the records do not contain
these.

Old segments are removed as wholes. Segments go while the others hold `keep` rows, the rows that the
learner's memory takes; segments that the learner has not read go only beyond four times as many.
The counts of their rows are written first.

When a log is opened, `recovery` reads all of it. It looks for the next whole record behind damaged
bytes, and cuts a torn record off the end of a segment. The numbers of first rows tell how many rows
are missing in between, and the run's document and the counts of sessions tell how many must have
been acknowledged. Lost rows are counted and logged, and their numbers are not given again.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from arkml.base.files import sync_directory
from arkml.base.loggers import SafeLogger
from arkml.hive.protocol.rows import Header, Place, frame, payload_size, segment_name
from arkml.hive.protocol.session_messages import ON_POLICY
from arkml.hive.protocol.settings import Settings
from arkml.server.recovery import LogContents, Segment, recover
from arkml.server.session_figures import SessionCounts, write_counts
from arkml.server.usage import DiskUse

_log = SafeLogger(__name__)

ON_POLICY_BYTES = 1 << 30
"""Bytes of the rows that the log of a run keeps whose learner has no replay buffer."""

_ROLLOUTS = 16  # that it keeps at least
_NO_COUNTS: Mapping[int, SessionCounts] = {}

_UNREAD_FACTOR = 4
"""A log keeps rows that its learner has not read, up to this factor of the rows it always keeps."""


class LogWriter:
    """
    The one writer of a run's log.

    When `append` returns, the rows are in the files, so they survive the end of any process; a
    power failure may lose rows appended since the last `sync`.

    Args:
        directory: The directory of the log.
        contents: The contents that the log has already.
        keep: The number of newest rows that the log keeps at least.
        segment: The size of a segment in bytes; a larger record gets a segment of its own size.
        take: Called with the size of each new segment; raises an error if there is no room for it.
        compress: Whether to compress rows.

    Attributes:
        end: The position after the last row.
        rows: The number of rows since the run began.
        lost: The number of those rows that were acknowledged and are damaged.
        counts: The counts of each session, by its index.

    """

    def __init__(
        self,
        directory: Path,
        contents: LogContents,
        *,
        keep: int,
        segment: int,
        take: Callable[[int], None] | None = None,
        compress: bool = False,
    ) -> None:
        self._directory = directory
        self._keep = keep
        self._segment_bytes = segment
        self._take = take
        self._compress = compress
        self._segments = contents.segments
        self.end = contents.end
        self._allocated = 0
        self._current: int | None = None
        # Path and status of the current segment, replaced as a whole: other threads read it.
        self._written: tuple[Path, os.stat_result] | None = None
        self._retired: list[int] = []
        self._synced = contents.end
        self._refused = self._refused_written = 0
        self.rows = contents.rows
        self.lost = contents.lost
        self.counts = contents.counts

    def append(self, body: bytes, session: int, header: Header, refused: int) -> Place:
        """
        Append a checked body, and return the position after it.

        Args:
            body: The rows as the protocol encodes them, with their header.
            session: The index of the session that sent them.
            header: The header of the body.
            refused: The number of rows that were removed from the body before.

        Raises:
            OSError: The record cannot be written. The log is unchanged then, as after an error of
                `take`.

        """
        self._require_place()
        record = frame(body, session=session, first=self.rows, compress=self._compress)
        if self._current is None or self.end.offset + len(record) > self._allocated:
            self._roll(len(record))
        self._write(record)
        self.end = Place(self.end.segment, self.end.offset + len(record))
        self.rows += header.rows
        counts = self.counts.get(session, SessionCounts())
        self.counts[session] = counts.plus(header, refused)
        self._refused += refused
        return self.end

    def _roll(self, need: int) -> None:
        number = self.end.segment + 1
        path = self._directory / segment_name(number)
        size = max(self._segment_bytes, need)
        if self._take is not None:
            self._take(size)
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
        self._written = path, os.fstat(opened)
        self.end = Place(number, 0)
        self._segments.append(Segment(number, self.rows))

    def _require_place(self) -> None:
        """Raise OSError if the current segment is no longer the file at its path."""
        if self._written is None:
            return
        path, status = self._written
        if not os.path.samestat(path.stat(), status):
            raise FileNotFoundError(errno.ENOENT, "the log was replaced by another file", path)

    def _write(self, record: bytes) -> None:
        assert self._current is not None
        unwritten = memoryview(record)
        at = self.end.offset
        try:
            while unwritten:
                count = os.pwrite(self._current, unwritten, at)
                unwritten, at = unwritten[count:], at + count
        except OSError:
            # A shorter record after it must not leave the rest of this one readable.
            os.ftruncate(self._current, self.end.offset)
            self._allocated = self.end.offset
            raise

    def sync(self) -> None:
        """
        Wait until the disk has all appended rows. One thread at a time may call this.

        Raises OSError, for example if the directory was removed; the next call retries.
        """
        self._require_place()
        retired = list(self._retired)
        for descriptor in retired:
            os.fdatasync(descriptor)
        if retired:
            sync_directory(self._directory)
            self._close_retired(len(retired))
        end, current = self.end, self._current  # in this order: the other thread may append
        if current is not None and end != self._synced:
            os.fdatasync(current)
            self._synced = end
        refused = self._refused
        if refused != self._refused_written:  # segments do not record refused rows
            self._write_counts()
            self._refused_written = refused

    def _close_retired(self, count: int) -> None:
        closed, self._retired[:count] = self._retired[:count], []
        for descriptor in closed:
            os.close(descriptor)

    def expired(self, reached: int) -> list[Segment]:
        """
        Remove segments that need not be kept from the list of the log's segments, and return them.

        Their files still exist; `remove` deletes them. `reached` is the number of the segment that
        the learner reads.
        """
        expired: list[Segment] = []
        while len(self._segments) > 1:
            beyond = self.rows - self._segments[1].first
            unread = self._segments[0].number >= reached
            if beyond < self._keep * (_UNREAD_FACTOR if unread else 1):
                break
            expired.append(self._segments.pop(0))
        return expired

    def remove(self, segments: list[Segment]) -> None:
        """Delete expired segments, after the counts of their rows are written. Raises OSError."""
        self._write_counts()
        for segment in segments:
            (self._directory / segment_name(segment.number)).unlink(missing_ok=True)

    def close(self) -> None:
        """Sync, and free the space that was allocated and not used. Raises OSError."""
        try:
            self.sync()
        finally:
            self._close_retired(len(self._retired))
            if self._current is not None:
                os.ftruncate(self._current, self.end.offset)
                os.close(self._current)
                self._current = None
        self._write_counts()

    def _write_counts(self) -> None:
        write_counts(self._directory, dict(self.counts))


def open_log(
    directory: Path,
    *,
    keep: int,
    segment: int,
    least: int = 0,
    take: Callable[[int], None] | None = None,
    compress: bool = False,
) -> LogWriter:
    """
    Open the log in a directory, which is created if it does not exist.

    Damaged records are skipped, and a torn record at the end of a segment is cut off. Blocks while
    it reads the whole log.

    Args:
        directory: The directory of the log.
        keep: The number of newest rows that the log keeps at least.
        segment: The size of a segment in bytes.
        least: The number of rows that are known to have been acknowledged. Missing ones count as
            lost, and their numbers are not given again.
        take: Called with the size of each new segment, see `LogWriter`.
        compress: Whether to compress rows that are added.

    Raises:
        OSError: The log cannot be read or written.

    """
    directory.mkdir(exist_ok=True)
    contents = recover(directory, least)
    return LogWriter(directory, contents, keep=keep, segment=segment, take=take, compress=compress)


class RunLog:
    """
    The log of a run, open while the run has a learner, and the number of its rows at all times.

    Everything that waits for the disk is done by other threads, except `append`.

    Args:
        directory: The directory of the log.
        disk: Counts the bytes of segments.
        rows: The number of rows when the run's document was written last.
        keep: The number of newest rows that the log keeps at least.
        segment_bytes: The size of a segment.
        compress: Whether to compress rows.

    """

    def __init__(
        self,
        directory: Path,
        disk: DiskUse,
        *,
        rows: int,
        keep: int,
        segment_bytes: int,
        compress: bool,
    ) -> None:
        self._directory = directory
        self._disk = disk
        self._rows = rows
        self._keep = keep
        self._segment_bytes = segment_bytes
        self._compress = compress
        self.cursor = Place(0, 0)
        """The position up to which the learner has read."""
        self.rows_read = 0
        """The number of rows up to there, 0 before a learner has reported it."""
        self._writer: LogWriter | None = None
        self._counted = _NO_COUNTS
        self._syncing = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """True while rows can be appended."""
        return self._writer is not None

    @property
    def rows(self) -> int:
        """The number of rows since the run began."""
        return self._writer.rows if self._writer else self._rows

    @property
    def lost(self) -> int:
        """The number of acknowledged rows that are damaged, 0 while the log is closed."""
        return self._writer.lost if self._writer else 0

    @property
    def end(self) -> Place | None:
        """The position after the last row, None while the log is closed."""
        return self._writer.end if self._writer else None

    @property
    def unread(self) -> int:
        """The number of rows that the learner has not read, according to its last report."""
        is_read = self.end is not None and self.cursor >= self.end
        return 0 if is_read else max(0, self.rows - self.rows_read)

    @property
    def counts(self) -> Mapping[int, SessionCounts]:
        """The counts of each session by its index, none while the log is closed."""
        return self._writer.counts if self._writer else _NO_COUNTS

    @property
    def counted(self) -> Mapping[int, SessionCounts]:
        """The counts of each session by its index, as they were when the log was closed last."""
        return self._writer.counts if self._writer else self._counted

    async def open(self) -> None:
        """Open the log, reading past damaged records. Raises OSError."""
        self._writer = await asyncio.to_thread(
            open_log,
            self._directory,
            keep=self._keep,
            segment=self._segment_bytes,
            least=self._rows,
            take=self._disk.take,
            compress=self._compress,
        )

    def acked(self, session: int) -> int:
        """
        Return the number of a session's last body in the log, from 1; 0 without one.

        While the log is closed, it is 0, too.
        """
        counts = self._writer.counts.get(session) if self._writer else None
        return counts.acked if counts else 0

    def append(self, body: bytes, session: int, header: Header, refused: int) -> Place:
        """
        Append a checked body to the open log, and return the position after it.

        Args:
            body: The rows as the protocol encodes them, with their header.
            session: The index of the session that sent them.
            header: The header of the body.
            refused: The number of rows that were removed from the body before.

        Raises:
            OSError: The record cannot be written. The log is unchanged then.

        """
        assert self._writer is not None
        return self._writer.append(body, session, header, refused)

    def mark_read(self, cursor: Place, rows: int) -> None:
        """
        Note how far the learner has read: a position in the log, and the number of rows before it.
        """
        self.cursor, self.rows_read = cursor, rows

    async def sync(self) -> None:
        """Wait until the disk has all rows, then delete expired segments. Raises OSError."""
        async with self._syncing:
            if self._writer is None:
                return
            await asyncio.to_thread(self._writer.sync)
            expired = self._writer.expired(self.cursor.segment)
            if expired:
                await asyncio.to_thread(self._writer.remove, expired)

    async def close(self) -> None:
        """Close the log if it is open. A failure is only logged: the segments hold the rows."""
        async with self._syncing:
            if self._writer is None:
                return
            self._rows, self._counted = self._writer.rows, dict(self._writer.counts)
            writer, self._writer = self._writer, None
            try:
                await asyncio.to_thread(writer.close)
            except OSError as error:
                _log.error("the log %s could not be closed: %s", self._directory, error)


def kept_rows(settings: Settings) -> int:
    """
    Return the number of newest rows that the log of a run keeps.

    After a restart, a learner with a replay buffer fills it from these rows. A learner from
    rollouts only needs the rows since its last checkpoint, so the log keeps fewer of them.
    """
    if settings.learner not in ON_POLICY:
        return settings.memory_max_size
    row = payload_size(1, settings.features, settings.actions, 0, settings.images)
    fitting = max(ON_POLICY_BYTES // row, _ROLLOUTS * settings.rollout_rows)
    return min(settings.memory_max_size, fitting)
