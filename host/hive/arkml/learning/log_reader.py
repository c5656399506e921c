"""The learner's end of a run's log: its rows, in the order of their acknowledgements."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from arkml.base.files import open_file
from arkml.base.loggers import SafeLogger
from arkml.hive.protocol.segments import Place, Record, find_record, segment_name

log = SafeLogger(__name__)

_START = Place(0, 0)


class LogReader:
    """
    Reads the segments in `directory`, mapped read-only.

    Nothing beyond the committed place is read, and no record is returned twice. Segments that were
    deleted before they were read are skipped, and so are damaged records.
    """

    def __init__(self, directory: Path) -> None:
        self.cursor = _START
        """The place up to which the log has been read."""
        self.lost = 0
        """Damaged rows between the rows that have been read."""
        self._rows: int | None = None  # rows before the next record, if known
        self._directory = directory
        self._committed = _START
        self._number = 0
        self._mapped: mmap.mmap | None = None
        self._view: memoryview | None = None

    @property
    def is_read(self) -> bool:
        """True if everything committed has been read."""
        return self.cursor >= self._committed

    def commit(self, place: Place) -> None:
        """Allow reading up to `place`."""
        self._committed = max(self._committed, place)

    def read(self, rows: int) -> Iterator[Record]:
        """Yield the next records, until at least `rows` rows or the last committed one."""
        while rows > 0 and not self.is_read:
            record = self._record()
            if record is None:
                self._skip_segment()
                continue
            self._count_damage(record)
            self.cursor = Place(self.cursor.segment, record.end)
            rows -= len(record.columns)
            yield record

    def _record(self) -> Record | None:
        """Return the next record in the segment of the cursor, None if it has no more."""
        number, offset = self.cursor
        data = self._map(number)
        if data is None:
            self._rows = None
            return None
        committed = self._committed
        until = committed.offset if number == committed.segment else len(data)
        return find_record(data, offset, until)

    def _count_damage(self, record: Record) -> None:
        """Count the damaged rows before a record."""
        lost = 0 if self._rows is None else record.first - self._rows
        if lost or record.start > self.cursor.offset:
            log.warning(
                "segment %d has %d damaged bytes at %d: %d rows are lost to learning",
                self.cursor.segment, record.start - self.cursor.offset, self.cursor.offset, lost,
            )  # fmt: skip
        self.lost += lost
        self._rows = record.first + len(record.columns)

    def _skip_segment(self) -> None:
        """Move the cursor to the next segment on disk, or to the end of the committed records."""
        number, offset = self.cursor
        committed = self._committed
        if number == committed.segment:
            log.warning(
                "segment %d cannot be read from byte %d to %d, though its rows are acknowledged",
                number, offset, committed.offset,
            )  # fmt: skip
            self.cursor = committed
            return
        later = (other for other in self._numbers() if other > number)
        self.cursor = Place(min(later, default=committed.segment), 0)
        if self.cursor.segment != number + 1:
            self._rows = None  # deleted segments do not count as damaged
        self._mapped = self._view = None

    def _numbers(self) -> Iterator[int]:
        for path in self._directory.glob("*.rows"):
            if path.stem.isdecimal():
                yield int(path.stem)

    def _map(self, number: int) -> memoryview | None:
        """Return the bytes of a segment at its present length, None if it is missing or empty."""
        mapped = self._mapped
        # The server may lengthen a segment, or cut it to its content.
        if mapped and self._number == number and mapped.size() == len(mapped):
            return self._view
        # The old map is unmapped with its last view: it cannot be closed while one is alive.
        self._mapped = self._view = None
        try:
            file = open_file(self._directory / segment_name(number))
        except FileNotFoundError:
            return None
        with file:
            if not os.fstat(file.fileno()).st_size:
                return None
            self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._number = number
        self._view = memoryview(self._mapped)
        return self._view
