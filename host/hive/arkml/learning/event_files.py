"""The TensorBoard event files of one run; older files are thinned to fewer events."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from arkml.base.files import read_plain, write_atomic
from arkml.hive.protocol.reports import DAY, HOUR, MINUTE, OLD_INTERVAL, SECOND, Report, thin
from arkml.learning.event_messages import Event, Summary, masked_crc32c, scalar

_PATTERN = "events.out.tfevents.*"
_HEADER, _SUM_BYTES = struct.Struct("<QI"), 4


class EventFiles:
    """
    The event files in `directory`, named by the second in which they begin.

    A file that has ended is kept unchanged for an hour, and then thinned to intervals of a minute.
    After a day the files of each day become one file under the name of the first, thinned to
    intervals of forty minutes. Only files that have ended are replaced, as a whole, so TensorBoard
    may read all of them meanwhile.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._due: deque[tuple[list[Path], int]] = deque()
        self._intervals: dict[Path, int] = {}

    def times(self) -> list[int]:
        """Return the time at which each file begins, in seconds since the Unix epoch."""
        return [_start(path) for path in self._listed()]

    def begin(self, path: Path) -> None:
        """Note that a file begins at `path`, and that all earlier files have ended."""
        self._due.clear()
        now = _start(path)
        ended = [one for one in self._listed() if one != path]
        ends = [*map(_start, ended), now][1:]
        pairs = list(zip(ended, ends, strict=True))
        for _, files in groupby(pairs, lambda pair: _start(pair[0]) * SECOND // DAY):
            self._plan(list(files), now)

    def thin_next(self) -> None:
        """Thin the files of one hour or one day, if any are due. Raises OSError."""
        if self._due:
            paths, interval = self._due.popleft()
            self._intervals[paths[0]] = interval  # only once, also where it fails
            _thin(paths, interval)

    def _plan(self, files: Sequence[tuple[Path, int]], now: int) -> None:
        """Plan the due work on the files of one day; each file comes with the second of its end."""
        if all(now - end > DAY // SECOND for _, end in files):
            paths = [path for path, _ in files]
            if len(paths) > 1 or self._intervals.get(paths[0]) != OLD_INTERVAL:
                self._due.append((paths, OLD_INTERVAL))
            return
        for path, end in files:
            if now - end >= HOUR // SECOND and path not in self._intervals:
                self._due.append(([path], MINUTE))

    def _listed(self) -> list[Path]:
        """Return the files in the order of their times."""
        return sorted((path for path in self._directory.glob(_PATTERN) if _start(path)), key=_start)


def record_of(event: Event) -> bytes:
    """Return an event as a TFRecord: its length and its bytes, each with a checksum."""
    data: bytes = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    sums = (struct.pack("<I", masked_crc32c(part)) for part in (length, data))
    return length + next(sums) + data + next(sums)


def read_events(path: Path) -> Iterator[Event]:
    """
    Yield the events of a file up to the first incomplete one.

    Checksums of events are not compared: in Python that takes longer than the rest of the work.
    Raises OSError, and protobuf's DecodeError for bytes that are not an event.
    """
    data, at = read_plain(path, follow=False), 0
    while at + _HEADER.size <= len(data):
        size, _ = _HEADER.unpack_from(data, at)
        at += _HEADER.size + size + _SUM_BYTES
        if at > len(data):
            return
        yield Event.FromString(data[at - size - _SUM_BYTES : at - _SUM_BYTES])


def _thin(paths: Sequence[Path], interval: int) -> None:
    """Put the remaining events of all files into the first. Raises OSError."""
    kept: dict[bytes, None] = {}
    reports: list[Report] = []
    for event in (one for path in paths for one in read_events(path)):
        values = event.summary.value
        if all(value.WhichOneof("value") == "simple_value" for value in values) and values:
            points = [(value.tag, event.step, value.simple_value) for value in values]
            reports.append((round(event.wall_time * SECOND), points))
        else:
            kept[record_of(event)] = None
    records = [*kept, *map(_record_of_report, thin(reports, interval))]
    write_atomic(paths[0], b"".join(records), durable=False)
    for path in paths[1:]:
        path.unlink()


def _record_of_report(report: Report) -> bytes:
    at, points = report
    summary = Summary()
    for name, _, value in points:
        summary.value.extend(scalar(name, value).value)
    return record_of(Event(wall_time=at / SECOND, step=points[0][1], summary=summary))


def _start(path: Path) -> int:
    """Return the second in which a file begins, 0 for the file of another program."""
    second = path.name.split(".")[3]
    return int(second) if second.isdecimal() else 0
