"""Reads the rows of a run from its log, in the order in which they were acknowledged."""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from arkml.hive.protocol.segments import Place, Record, find_record, segment_name

log = logging.getLogger(__name__)

_START = Place(0, 0)


class Log:
    """
    The segments in `directory`, mapped read-only.

    Nothing is read beyond `committed`, and what was read once does not come again. Segments that
    were deleted before they were read are stepped over, and so are damaged records.
    """

    def __init__(self, directory: Path) -> None:
        self.cursor = _START
        """How far it was read."""
        self.lost = 0
        """Rows between those that were read that are damaged."""
        self._rows: int | None = None  # before the next record, if that is known
        self._directory = directory
        self._committed = _START
        self._number = 0
        self._mapped: mmap.mmap | None = None
        self._view: memoryview | None = None

    @property
    def is_read(self) -> bool:
        """Whether all that was committed was read."""
        return self.cursor >= self._committed

    def commit(self, place: Place) -> None:
        """Everything before `place` may be read from now on."""
        self._committed = max(self._committed, place)

    def read(self, rows: int) -> Iterator[Record]:
        """The next records, until at least so many rows came."""
        while rows > 0 and not self.is_read:
            record = self._record()
            if record is None:
                self._step_over()
                continue
            self._pass_over(record)
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

    def _pass_over(self, record: Record) -> None:
        """Count what is damaged before a record."""
        lost = 0 if self._rows is None else record.first - self._rows
        if lost or record.start > self.cursor.offset:
            log.warning(
                "segment %d has %d damaged bytes at %d; %d rows cannot be learned from",
                self.cursor.segment, record.start - self.cursor.offset, self.cursor.offset, lost,
            )  # fmt: skip
        self.lost += lost
        self._rows = record.first + len(record.columns)

    def _step_over(self) -> None:
        """Go on with the next segment there is, or with what comes after all that is committed."""
        number, offset = self.cursor
        committed = self._committed
        if number == committed.segment:
            log.warning(
                "segment %d cannot be read from %d up to %d, where rows are acknowledged",
                number, offset, committed.offset,
            )  # fmt: skip
            self.cursor = committed
            return
        later = (found for found in self._numbers() if found > number)
        self.cursor = Place(min(later, default=committed.segment), 0)
        if self.cursor.segment != number + 1:
            self._rows = None  # those between were deleted, and are not lost
        self._mapped = self._view = None

    def _numbers(self) -> Iterator[int]:
        for path in self._directory.glob("*.rows"):
            if path.stem.isdecimal():
                yield int(path.stem)

    def _map(self, number: int) -> memoryview | None:
        """The bytes of a segment as long as it is now, None if it is gone or empty."""
        mapped = self._mapped
        # The server may lengthen a segment, or cut it to what is in it.
        if mapped and self._number == number and mapped.size() == len(mapped):
            return self._view
        # The old map goes with the last view of it: it cannot be closed while one is alive.
        self._mapped = self._view = None
        try:
            file = (self._directory / segment_name(number)).open("rb")
        except FileNotFoundError:
            return None
        with file:
            if not os.fstat(file.fileno()).st_size:
                return None
            self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._number = number
        self._view = memoryview(self._mapped)
        return self._view
