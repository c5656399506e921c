"""The log of one run, as the event loop of a hive uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from arkml.base.loggers import SafeLogger
from arkml.hive.protocol.rows import Header, payload_size
from arkml.hive.protocol.segments import Place
from arkml.hive.protocol.session_messages import ON_POLICY
from arkml.hive.protocol.settings import Settings
from arkml.server.log import LogWriter, SessionCounts
from arkml.server.recovery import open_log
from arkml.server.usage import DiskUse

_log = SafeLogger(__name__)

_NO_COUNTS: Mapping[int, SessionCounts] = {}


ON_POLICY_BYTES = 1 << 30
"""Bytes of the rows that the log of a run keeps whose learner has no replay buffer."""

_ROLLOUTS = 16  # that it keeps at least


def kept_rows(settings: Settings) -> int:
    """
    Return the newest rows that the log of a run keeps.

    A replay buffer is filled from them again. A learner by rollouts takes those since its last
    checkpoint, so that not as many of large rows have to stay as a replay buffer would hold.
    """
    if settings.learner not in ON_POLICY:
        return settings.memory_max_size
    row = payload_size(1, settings.features, settings.actions, 0, settings.images)
    fitting = max(ON_POLICY_BYTES // row, _ROLLOUTS * settings.rollout_rows)
    return min(settings.memory_max_size, fitting)


class RunLog:
    """
    A log that is open while its run has a learner, and the number of its rows at all times.

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
        """Return the number of the last body of a session, 0 without one and while closed."""
        counts = self._writer.counts.get(session) if self._writer else None
        return counts.acked if counts else 0

    def append(self, body: bytes, session: int, header: Header, refused: int) -> Place:
        """
        Append a checked body, as `LogWriter.append`.

        Returns the position after it. Raises HiveRefused and OSError.
        """
        assert self._writer is not None
        self._writer.append(body, session, header, refused)
        return self._writer.end

    def mark_read(self, cursor: Place, rows: int) -> None:
        """Note the position up to which the learner has read, and the rows up to there."""
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
