"""Reads the rows of a run from its log, in the order in which they were acknowledged."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from arkml.errors import ProtocolError
from arkml.hive.protocol.segments import Place, Record, read_record, segment_name

_START = Place(0, 0)


class Log:
    """
    The segments in `directory`, mapped read-only.

    Nothing is read beyond `committed`, and what was read once does not come again. Segments that
    were deleted before they were read are stepped over.
    """

    def __init__(self, directory: Path) -> None:
        self.cursor = _START
        """How far it was read."""
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
        """
        The next records, until at least so many rows came.

        Raises ProtocolError where acknowledged rows cannot be read.
        """
        while rows > 0 and not self.is_read:
            record = self._record()
            if record is None:
                self._step_over()
                continue
            self.cursor = Place(self.cursor.segment, record.end)
            rows -= len(record.columns)
            yield record

    def _record(self) -> Record | None:
        """The record at the cursor, None if its segment has no more."""
        number, offset = self.cursor
        data = self._map(number)
        return None if data is None else read_record(data, offset, check=False)

    def _step_over(self) -> None:
        """Go on with the next segment there is."""
        number, offset = self.cursor
        committed = self._committed
        if number == committed.segment:
            raise ProtocolError(
                f"no rows can be read at {offset} of segment {number}, though they are"
                f" acknowledged up to {committed.offset}"
            )
        later = (found for found in self._numbers() if found > number)
        self.cursor = Place(min(later, default=committed.segment), 0)
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
