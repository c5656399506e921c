"""The files of one run's metrics: reports of the last hour, of the last day, and older ones."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from arkml.files import write_atomic
from arkml.hive.protocol.reports import DAY, HOUR, MINUTE, OLD_INTERVAL, Point, Report, thin

RECENT_NAME, MINUTES_NAME, OLD_NAME = "metrics.jsonl", "metrics.minutes.jsonl", "metrics.old.jsonl"

_MAX_INTEGER = (1 << 63) - 1
_CHUNK = 8 << 20
"""Bytes that are read at a time; a longer line is taken for a damaged one."""

_RETRY = 10 * MINUTE


@dataclass(frozen=True, slots=True)
class _Move:
    """Reports of one file that go to the next one: after `age`, at most `slack` later, thinned."""

    source: str
    target: str
    age: int
    slack: int
    interval: int


_MOVES = (
    _Move(MINUTES_NAME, OLD_NAME, DAY, 2 * HOUR, OLD_INTERVAL),
    _Move(RECENT_NAME, MINUTES_NAME, HOUR, 10 * MINUTE, MINUTE),
)


@dataclass(frozen=True, slots=True)
class Thinned:
    """
    The reports that are left of those from the time `begin` to the time `end`, both included.

    `is_repeated` says that some were moved before by a process that was then interrupted, and are
    not among the `reports`.
    """

    begin: int
    end: int
    reports: list[Report]
    is_repeated: bool


class MetricsFiles:
    """
    Three files with a line for each report, `[time, points]`, in the order of the times.

    A report is appended to the first file, and moves on when it is old: to a file by the minute,
    and after a day to one by twenty minutes. Each keeps the lowest, the highest and the last value
    of each interval. A report is appended to the next file before its own file is replaced, so a
    process that is killed between the two leaves it in both: one that is not later than the
    last report of an older file does not count.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._moved: int | None = None
        self._idle_until = 0

    def repair(self) -> None:
        """Cut a torn last line off each file. Raises OSError."""
        for path in self._paths(RECENT_NAME, MINUTES_NAME, OLD_NAME):
            _cut_torn_line(path)

    def append(self, report: Report) -> None:
        """Append a report, which is later than all others. Raises OSError."""
        with (self._directory / RECENT_NAME).open("ab") as file:
            file.write(_line(report))

    def first_time(self) -> int:
        """Return the time of the first report of the last hour, 0 without any. Raises OSError."""
        return _first_time(self._directory / RECENT_NAME)

    def last_time(self) -> int:
        """Return the time of the last report, 0 without any. Raises OSError."""
        return max(map(_last_time, self._paths(RECENT_NAME, MINUTES_NAME, OLD_NAME)))

    def read_old(self) -> Iterator[list[Report]]:
        """Yield the reports of the older files, the oldest first. Raises OSError."""
        end = _last_time(self._directory / OLD_NAME)
        for reports, _ in _read(self._directory / OLD_NAME, 0):
            yield reports
        for reports, _ in _read(self._directory / MINUTES_NAME, 0):
            yield [report for report in reports if report[0] > end]

    def read_recent(self, offset: int) -> Iterator[tuple[list[Report], int]]:
        """Yield reports from an offset of the first file on, and the offset after them."""
        if self._moved is None:
            self._moved = max(map(_last_time, self._paths(OLD_NAME, MINUTES_NAME)))
        end = self._moved
        for reports, position in _read(self._directory / RECENT_NAME, offset):
            yield [report for report in reports if report[0] > end], position

    def read(self) -> Iterator[list[Report]]:
        """Yield all reports, the oldest first. Raises OSError."""
        yield from self.read_old()
        for reports, _ in self.read_recent(0):
            yield reports

    def size(self) -> int:
        """Return the bytes of the first file, 0 without it."""
        try:
            return (self._directory / RECENT_NAME).stat().st_size
        except FileNotFoundError:
            return 0

    def thin(self, now: int) -> list[Thinned]:
        """
        Move the reports on that are due at the time `now`, a bounded number of them at once.

        Returns what is left of the reports that were moved. Raises OSError, and then each file is
        as before or as after, and nothing is moved for some minutes.
        """
        if now < self._idle_until:
            return []
        self._moved, self._idle_until = None, now + _RETRY
        thinned = self._move_all(now)
        self._idle_until = 0
        return thinned

    def _move_all(self, now: int) -> list[Thinned]:
        return [done for move in _MOVES if (done := self._move(move, now)) is not None]

    def _paths(self, *names: str) -> list[Path]:
        return [self._directory / name for name in names]

    def _move(self, move: _Move, now: int) -> Thinned | None:
        source, target = self._directory / move.source, self._directory / move.target
        first = _first_time(source)
        cut = (now - move.age) // move.interval * move.interval
        if not first or first > now - move.age - move.slack:
            return None
        reports: list[Report] = []
        offset = 0
        data = next(_chunks(source, 0), b"")
        for line in data.splitlines(keepends=True):
            report = _parse_line(line)
            if report is not None and report[0] >= cut:
                break
            offset += len(line)
            reports += [] if report is None else [report]
        _cut_torn_line(target)
        end = _last_time(target)
        thinned = thin([report for report in reports if report[0] > end], move.interval)
        _append(target, thinned)
        with source.open("rb") as file:
            file.seek(offset)
            write_atomic(source, file.read(), durable=True)
        if not reports:
            return None
        times = [at for at, _ in reports]
        return Thinned(min(times), max(times), thinned, min(times) <= end)


def _append(path: Path, reports: Sequence[Report]) -> None:
    """Append reports. Raises OSError, and then the file is as before."""
    with path.open("ab") as file:
        size = file.tell()
        try:
            file.write(b"".join(map(_line, reports)))
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            file.truncate(size)
            raise


def _line(report: Report) -> bytes:
    return json.dumps(report, separators=(",", ":")).encode() + b"\n"


def _chunks(path: Path, offset: int) -> Iterator[bytes]:
    """Yield whole lines from an offset on, some MiB at a time; nothing without a file."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        file.seek(offset)
        while data := file.read(_CHUNK):
            whole = data.rfind(b"\n") + 1
            if whole:
                file.seek(whole - len(data), os.SEEK_CUR)
            elif len(data) < _CHUNK:
                return  # a line that is being written
            yield data[: whole or _CHUNK]


def _read(path: Path, offset: int) -> Iterator[tuple[list[Report], int]]:
    for data in _chunks(path, offset):
        offset += len(data)
        yield list(_parse_lines(data.splitlines())), offset


def _parse_lines(lines: Iterable[bytes]) -> Iterator[Report]:
    return (report for line in lines if (report := _parse_line(line)) is not None)


def _parse_line(line: bytes) -> Report | None:
    """Return the report in a line, None if it is damaged."""
    try:
        at, points = json.loads(line)
        values: list[Point] = [(str(name), int(step), float(value)) for name, step, value in points]
        "".join(name for name, *_ in values).encode()
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    if type(at) is not int or not 0 < at <= _MAX_INTEGER:
        return None
    return at, [
        (name, step, value)
        for name, step, value in values
        if math.isfinite(value) and abs(step) <= _MAX_INTEGER
    ]


def _first_time(path: Path) -> int:
    """Return the time of the first report of a file, 0 without any."""
    try:
        with path.open("rb") as file:
            while line := file.readline(_CHUNK):
                if line.endswith(b"\n") and (report := _parse_line(line)) is not None:
                    return report[0]
    except FileNotFoundError:
        pass
    return 0


def _last_time(path: Path) -> int:
    """Return the time of the last report of a file, 0 without any."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _CHUNK))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return 0
    for line in reversed(lines[:-1]):
        if (report := _parse_line(line)) is not None:
            return report[0]
    return 0


def _cut_torn_line(path: Path) -> None:
    try:
        with path.open("r+b") as file:
            start = max(0, file.seek(0, os.SEEK_END) - _CHUNK)
            file.seek(start)
            file.truncate(start + file.read().rfind(b"\n") + 1)
    except FileNotFoundError:
        return
