"""The metrics and histograms of a run in files of JSON lines, as older releases wrote them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec

from arkml.base.files import open_file
from arkml.base.loggers import SafeLogger
from arkml.errors import HiveError
from arkml.hive.protocol.histograms import HistogramPoints
from arkml.hive.protocol.reports import Point, Report
from arkml.server.metrics_store import MetricsStore, is_storable

T = TypeVar("T")

OLD_REPORTS = ("metrics*.jsonl", "histograms*.jsonl")
"""The patterns of these files."""

OLD_INDEX = ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm")
"""The copy of all metrics that releases kept in the data directory, beside these files."""

_log = SafeLogger(__name__)

_LONGEST = 8 << 20
"""Bytes of a line; a longer one is taken for a damaged one."""

_AT_ONCE = 1_000
_HISTOGRAMS = msgspec.json.Decoder(tuple[int, HistogramPoints])


def move_reports(directory: Path) -> None:
    """Move the metrics and histograms in the JSON files of a run to its store. Raises HiveError."""
    with closing(MetricsStore(directory)) as store:
        try:
            _move_all(directory, "metrics", _parse_metrics, store.add)
            _move_all(directory, "histograms", _parse_histograms, store.add_histograms)
        except sqlite3.Error as error:
            raise HiveError(f"its metrics cannot be written: {error}") from error


def _move_all(
    directory: Path,
    name: str,
    parse: Callable[[bytes], tuple[int, T]],
    add: Callable[[list[tuple[int, T]]], None],
) -> None:
    last = 0
    for part in (".old", ".minutes", ""):
        path = directory / f"{name}{part}.jsonl"
        try:
            last = _move(path, parse, add, last)
            path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("%s cannot be read: %s", path, error)


def _move(
    path: Path,
    parse: Callable[[bytes], tuple[int, T]],
    add: Callable[[list[tuple[int, T]]], None],
    last: int,
) -> int:
    """Add the reports of a file that are later than `last`; return the time of the last one."""
    reports = [one for one in _read(path, parse) if one[0] > last]
    for first in range(0, len(reports), _AT_ONCE):
        add(reports[first : first + _AT_ONCE])
    return max((at for at, _ in reports), default=last)


def _read(path: Path, parse: Callable[[bytes], tuple[int, T]]) -> Iterator[tuple[int, T]]:
    """Yield the reports of a file, without damaged ones; none without the file."""
    try:
        file = open_file(path, follow=False)
    except FileNotFoundError:
        return
    with file:
        while line := file.readline(_LONGEST):
            try:
                yield parse(line)
            except (ValueError, TypeError, OverflowError, RecursionError, msgspec.DecodeError):
                continue


def _parse_metrics(line: bytes) -> Report:
    at, points = json.loads(line)
    values: list[Point] = [(str(name), int(step), float(value)) for name, step, value in points]
    return _checked(at), [one for one in values if is_storable(one)]


def _parse_histograms(line: bytes) -> tuple[int, HistogramPoints]:
    at, points = _HISTOGRAMS.decode(line)
    return _checked(at), points


def _checked(at: object) -> int:
    if type(at) is not int or not 0 < at < 1 << 63:
        raise ValueError(f"{at!r} is not a time")
    return at
