"""Reports of metrics: values with a common time, and the thinning of old reports."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

Point = tuple[str, int, float]
"""A value of a metric: name, step, value."""

Report = tuple[int, list[Point]]
"""Values that were reported together: their time in nanoseconds since the Unix epoch, points."""

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

OLD_INTERVAL = 40 * MINUTE
"""
The interval of reports older than a day.

Reports of the last hour are kept in full, reports of the last day are kept by the minute.
"""


class ReportClock:
    """
    Times of reports, in nanoseconds since the Unix epoch, each later than its predecessor.

    The wall clock is read once and a monotonic clock from then on, so that curves over time have no
    jumps if the wall clock is set. `last` is the time of the last report of an earlier process.
    """

    def __init__(self, last: int = 0) -> None:
        self._last = last
        self._offset = max(time.time_ns(), last) - time.monotonic_ns()

    def now(self) -> int:
        """Return the time of the next report."""
        self._last = max(self._last + 1, self._offset + time.monotonic_ns())
        return self._last


@dataclass(slots=True)
class _Kept:
    """The places of the reports with the lowest, the highest and the last value of a metric."""

    low: float
    high: float
    at_low: int
    at_high: int
    at_last: int

    def add(self, value: float, place: int) -> None:
        self.at_last = place
        if value < self.low:
            self.low, self.at_low = value, place
        if value > self.high:
            self.high, self.at_high = value, place


def thin(reports: Sequence[Report], interval: int) -> list[Report]:
    """
    Keep the lowest, the highest and the last value of each metric in each interval.

    Points keep their times and steps, so curves keep their extremes and their order; of the values
    3, 1, 2, 5, 4, for example, 1, 5 and 4 are kept. Of equal values the last is kept. A report
    without any point left is dropped. Thinning is idempotent.

    Args:
        reports: Reports in the order of their times.
        interval: Length of an interval in nanoseconds.

    """
    metrics: dict[tuple[int, str], _Kept] = {}
    for place, (at, points) in enumerate(reports):
        for name, _, value in points:
            known = metrics.get(key := (at // interval, name))
            if known is None:
                metrics[key] = _Kept(value, value, place, place, place)
            else:
                known.add(value, place)
    kept: list[set[str]] = [set() for _ in reports]
    for (_, name), one in metrics.items():
        places = (one.at_low, one.at_high, one.at_last)
        for place in places if one.low < one.high else places[2:]:
            kept[place].add(name)
    return [
        (at, [point for point in points if point[0] in names])
        for (at, points), names in zip(reports, kept, strict=True)
        if names
    ]
