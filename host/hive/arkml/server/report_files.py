"""The files of one run's reports: of the last hour, of the last day, and of older ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from arkml.base.files import open_file, write_atomic
from arkml.hive.protocol.reports import DAY, HOUR, MINUTE

T = TypeVar("T")

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


@dataclass(frozen=True, slots=True)
class ReportKind(Generic[T]):
    """
    A kind of reports; a report is a time and a value.

    Attributes:
        names: The names of the three files, the newest first.
        intervals: Nanoseconds between reports older than an hour, and between reports older than a
            day.
        parse: Reads a line; returns None for a damaged one.
        format: Writes a line.
        thin: Thins reports to an interval.

    """

    names: tuple[str, str, str]
    intervals: tuple[int, int]
    parse: Callable[[bytes], tuple[int, T] | None]
    format: Callable[[tuple[int, T]], bytes]
    thin: Callable[[Sequence[tuple[int, T]], int], list[tuple[int, T]]]

    @property
    def moves(self) -> tuple[_Move, _Move]:
        """The moves between the files, the move of the oldest reports first."""
        recent, minutes, old = self.names
        by_minutes, by_hours = self.intervals
        return (
            _Move(minutes, old, DAY, 2 * HOUR, by_hours),
            _Move(recent, minutes, HOUR, 10 * MINUTE, by_minutes),
        )


@dataclass(frozen=True, slots=True)
class Thinned(Generic[T]):
    """
    The reports that remain of all between the times `begin` and `end`, both included.

    `is_repeated` says that an interrupted process had moved some reports before: these are not in
    `reports`.
    """

    begin: int
    end: int
    reports: list[tuple[int, T]]
    is_repeated: bool


class ReportFiles(Generic[T]):
    """
    Three files with a line for each report, in the order of the times.

    A report is appended to the first file, and moves on when it is old: thinned to a file of the
    last day, and then to one of older reports. A report is appended to the next file before its own
    file is replaced, so a process that is killed between the two leaves it in both: one that is not
    later than the last report of an older file does not count.
    """

    def __init__(self, directory: Path, kind: ReportKind[T]) -> None:
        self._directory = directory
        self._kind = kind
        self._recent, self._minutes, self._old = (directory / name for name in kind.names)
        self._moved: int | None = None
        self._idle_until = 0

    def repair(self) -> None:
        """Cut a torn last line off each file. Raises OSError."""
        for path in (self._recent, self._minutes, self._old):
            _cut_torn_line(path)

    def append(self, report: tuple[int, T]) -> None:
        """Append a report, which is later than all others. Raises OSError."""
        with open_file(self._recent, follow=False, mode="ab") as file:
            file.write(self._kind.format(report))

    def first_time(self) -> int:
        """Return the time of the first report of the last hour, 0 without any. Raises OSError."""
        return self._first_time(self._recent)

    def last_time(self) -> int:
        """Return the time of the last report, 0 without any. Raises OSError."""
        return max(map(self._last_time, (self._recent, self._minutes, self._old)))

    def read_old(self) -> Iterator[list[tuple[int, T]]]:
        """Yield the reports of the older files, the oldest first. Raises OSError."""
        end = self._last_time(self._old)
        for reports, _ in self._read(self._old, 0):
            yield reports
        for reports, _ in self._read(self._minutes, 0):
            yield [report for report in reports if report[0] > end]

    def read_recent(self, offset: int) -> Iterator[tuple[list[tuple[int, T]], int]]:
        """Yield reports from an offset of the first file on, and the offset after them."""
        if self._moved is None:
            self._moved = max(map(self._last_time, (self._old, self._minutes)))
        end = self._moved
        for reports, position in self._read(self._recent, offset):
            yield [report for report in reports if report[0] > end], position

    def read(self) -> Iterator[list[tuple[int, T]]]:
        """Yield all reports, the oldest first. Raises OSError."""
        yield from self.read_old()
        for reports, _ in self.read_recent(0):
            yield reports

    def size(self) -> int:
        """Return the bytes of the first file, 0 without it."""
        try:
            return self._recent.stat().st_size
        except FileNotFoundError:
            return 0

    def thin(self, now: int) -> list[Thinned[T]]:
        """
        Move the reports on that are due at the time `now`, a bounded number of them at once.

        Returns the thinned reports that were moved. Raises OSError; each file is then either
        unchanged or wholly rewritten, and nothing is moved for some minutes.
        """
        if now < self._idle_until:
            return []
        self._moved, self._idle_until = None, now + _RETRY
        thinned = self._move_all(now)
        self._idle_until = 0
        return thinned

    def _move_all(self, now: int) -> list[Thinned[T]]:
        return [done for move in self._kind.moves if (done := self._move(move, now)) is not None]

    def _move(self, move: _Move, now: int) -> Thinned[T] | None:
        source, target = self._directory / move.source, self._directory / move.target
        first = self._first_time(source)
        cut = (now - move.age) // move.interval * move.interval
        if not first or first > now - move.age - move.slack:
            return None
        reports: list[tuple[int, T]] = []
        offset = 0
        data = next(_chunks(source, 0), b"")
        for line in data.splitlines(keepends=True):
            report = self._kind.parse(line)
            if report is not None and report[0] >= cut:
                break
            offset += len(line)
            reports += [] if report is None else [report]
        _cut_torn_line(target)
        end = self._last_time(target)
        thinned = self._kind.thin([report for report in reports if report[0] > end], move.interval)
        self._append(target, thinned)
        with open_file(source, follow=False) as file:
            file.seek(offset)
            write_atomic(source, file.read(), durable=True)
        if not reports:
            return None
        times = [at for at, _ in reports]
        return Thinned(min(times), max(times), thinned, min(times) <= end)

    def _append(self, path: Path, reports: Sequence[tuple[int, T]]) -> None:
        """Append reports. Raises OSError, and then the file is as before."""
        with open_file(path, follow=False, mode="ab") as file:
            size = file.tell()
            try:
                file.write(b"".join(map(self._kind.format, reports)))
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                file.truncate(size)
                raise

    def _read(self, path: Path, offset: int) -> Iterator[tuple[list[tuple[int, T]], int]]:
        parse = self._kind.parse
        for data in _chunks(path, offset):
            offset += len(data)
            lines = map(parse, data.splitlines())
            yield [report for report in lines if report is not None], offset

    def _first_time(self, path: Path) -> int:
        """Return the time of the first report of a file, 0 without any."""
        try:
            with open_file(path, follow=False) as file:
                while line := file.readline(_CHUNK):
                    if line.endswith(b"\n") and (report := self._kind.parse(line)) is not None:
                        return report[0]
        except FileNotFoundError:
            pass
        return 0

    def _last_time(self, path: Path) -> int:
        """Return the time of the last report of a file, 0 without any."""
        try:
            with open_file(path, follow=False) as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _CHUNK))
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return 0
        for line in reversed(lines[:-1]):
            if (report := self._kind.parse(line)) is not None:
                return report[0]
        return 0


def _chunks(path: Path, offset: int) -> Iterator[bytes]:
    """Yield whole lines from an offset on, some MiB at a time; yields nothing without a file."""
    try:
        file = open_file(path, follow=False)
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


def _cut_torn_line(path: Path) -> None:
    try:
        with open_file(path, follow=False, mode="r+b") as file:
            start = max(0, file.seek(0, os.SEEK_END) - _CHUNK)
            file.seek(start)
            file.truncate(start + file.read().rfind(b"\n") + 1)
    except FileNotFoundError:
        return
