"""The files of one run's metrics: a line of JSON for each report, `[time, points]`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

from arkml.hive.protocol.reports import MINUTE, OLD_INTERVAL, Point, Report, thin
from arkml.server.report_files import ReportFiles, ReportKind

_MAX_INTEGER = (1 << 63) - 1


class MetricsFiles(ReportFiles[list[Point]]):
    """The files in the directory of a run; they keep the lowest, highest and last values."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, _METRICS)


def _line(report: Report) -> bytes:
    at, points = report
    short = [(name, step, _short(value)) for name, step, value in points]
    return json.dumps([at, short], separators=(",", ":")).encode() + b"\n"


def _short(value: float) -> float:
    """Return a whole number without its decimal point."""
    return int(value) if value.is_integer() and abs(value) < _MAX_INTEGER else value


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


def _thin(reports: Sequence[Report], interval: int) -> list[Report]:
    """Thin reports, and round their values to the seven digits that a float32 has."""
    return [
        (at, [(name, step, _rounded(value)) for name, step, value in points])
        for at, points in thin(reports, interval)
    ]


def _rounded(value: float) -> float:
    return value if value.is_integer() else float(f"{value:.7g}")


_METRICS = ReportKind(
    ("metrics.jsonl", "metrics.minutes.jsonl", "metrics.old.jsonl"),
    (MINUTE, OLD_INTERVAL),
    _parse_line,
    _line,
    _thin,
)
