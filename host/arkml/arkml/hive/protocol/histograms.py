"""Histograms of features and actions, with bins on grids that contain each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.hive.protocol.wire import Count, WireStruct

MOST_HISTOGRAMS = 64
"""Histograms of one report, of features and of actions each."""

MOST_BINS = 33
"""Bins of one histogram: a span of 32 bins that do not begin at its lowest value takes 33."""

SHOWN_BINS = 65
"""Bins of the histograms of one reply, which all have the same edges."""

_FINEST = -24  # exponent of the least width beside the largest value, so that edges are exact
_LEAST_EXPONENT, _LARGEST_EXPONENT = -300, 1_000


class Bins(NamedTuple):
    """
    Numbers of values in bins of equal width, which is `2 ** exponent`.

    Bin k begins at `k * width`, and the first bin is number `first`. With exponent -1 and first 3,
    for example, the bins are [1.5, 2), [2, 2.5) and so on. Wider bins are whole numbers of narrower
    ones, so that any two histograms can be added exactly, in the wider bins.
    """

    exponent: int
    first: int
    counts: list[int]

    @property
    def last(self) -> int:
        """The number of the last bin."""
        return self.first + len(self.counts) - 1


class Histogram(NamedTuple):
    """
    The values of one feature or action in a sample of rows.

    Attributes:
        name: Name of the feature or action.
        bins: Counts of values.
        lowest: The lowest value.
        highest: The highest value.
        at_bounds: Share of values at the bounds, such as 0.2: of features, the values that the
            scaling clips; of continuous actions, the values within 0.01 of -1 or 1; 0 for the
            choices of a branch.

    """

    name: str
    bins: Bins
    lowest: float
    highest: float
    at_bounds: float


HistogramPoints = tuple[int, list[Histogram]]
"""Histograms that were made together: the rows of the run at that time, and the histograms."""


class HistogramQuery(WireStruct, frozen=True):
    """
    Parameters of a request for histograms.

    Attributes:
        name: The histogram to return over time, empty for none.
        since: The number of rows of the run at which it begins.

    """

    name: str = ""
    since: int = 0


class HistogramInfo(WireStruct, frozen=True):
    """
    A summary of the newest histogram of a feature or action.

    Attributes:
        name: Name of the feature or action.
        lowest: The lowest value.
        highest: The highest value.
        at_bounds: Share of values at the bounds, from 0 to 1; see `Histogram`.

    """

    name: str
    lowest: float
    highest: float
    at_bounds: float


class HistogramReply(WireStruct, frozen=True):
    """
    The names of all histograms, and one of them over time.

    Attributes:
        histograms: Summaries of all histograms.
        times: Nanoseconds since the Unix epoch.
        rows: Rows of the run at these times.
        edges: Edges of the bins, one more than bins.
        counts: Counts of values between the edges, for each time.

    """

    histograms: list[HistogramInfo]
    times: list[Count]
    rows: list[Count]
    edges: list[float]
    counts: list[list[Count]]


def bins_of(values: npt.NDArray[Any], least: int = _LEAST_EXPONENT) -> Bins:
    """
    Return a histogram of finite values, [n], of which there is at least one.

    Bins are at least `2 ** least` wide.
    """
    low, high = float(values.min()), float(values.max())
    exponent = math.frexp((high - low) / MOST_BINS)[1] - 1 if high > low else least
    exponent = max(exponent, least, math.frexp(max(abs(low), abs(high)))[1] + _FINEST)
    while _bin(high, exponent) - _bin(low, exponent) >= MOST_BINS:
        exponent += 1
    first = _bin(low, exponent)
    numbers = np.floor(np.ldexp(values.astype(np.float64), -exponent)).astype(np.int64) - first
    return Bins(exponent, first, np.bincount(numbers).tolist())


def _bin(value: float, exponent: int) -> int:
    """Return the number of the bin of a value."""
    return math.floor(math.ldexp(value, -exponent))


def common_grid(parts: Sequence[Bins], most: int = MOST_BINS) -> tuple[int, int, int]:
    """
    Return the exponent, the first and the last bin of a grid that covers several histograms.

    Its bins are the narrowest that are not narrower than theirs, and at most `most` in number.
    """
    exponent = max(part.exponent for part in parts)
    first = min(part.first >> (exponent - part.exponent) for part in parts)
    last = max(part.last >> (exponent - part.exponent) for part in parts)
    while last - first >= most:
        exponent, first, last = exponent + 1, first >> 1, last >> 1
    return exponent, first, last


def on_grid(part: Bins, exponent: int, first: int, last: int) -> list[int]:
    """
    Return the counts of a histogram in wider bins.

    Args:
        part: The histogram.
        exponent: The wider bins have the width `2 ** exponent`.
        first: Number of the first wider bin; the wider bins must cover all values.
        last: Number of the last wider bin.

    """
    counts = [0] * (last - first + 1)
    shift = exponent - part.exponent
    for number, count in enumerate(part.counts, part.first):
        counts[(number >> shift) - first] += count
    return counts


def added(parts: Sequence[Histogram]) -> Histogram:
    """Return the sum of histograms of the same feature or action."""
    bins = [part.bins for part in parts]
    grid = common_grid(bins)
    counts = [sum(column) for column in zip(*(on_grid(one, *grid) for one in bins), strict=True)]
    sizes = [sum(one.counts) for one in bins]
    at_bounds = sum(one.at_bounds * size for one, size in zip(parts, sizes, strict=True))
    return Histogram(
        parts[0].name,
        Bins(*grid[:2], counts),
        min(part.lowest for part in parts),
        max(part.highest for part in parts),
        at_bounds / max(1, sum(sizes)),
    )


def thin_histograms(
    reports: Sequence[tuple[int, HistogramPoints]], interval: int
) -> list[tuple[int, HistogramPoints]]:
    """
    Add up the histograms of each interval into one report, at the time of the last one.

    Thinning is idempotent.

    Args:
        reports: Times in nanoseconds, ascending, each with its histograms.
        interval: Length of an interval in nanoseconds.

    """
    intervals: dict[int, list[tuple[int, HistogramPoints]]] = {}
    for report in reports:
        intervals.setdefault(report[0] // interval, []).append(report)
    thinned = []
    for members in intervals.values():
        named: dict[str, list[Histogram]] = {}
        for histogram in (one for _, (_, histograms) in members for one in histograms):
            named.setdefault(histogram.name, []).append(histogram)
        at, (rows, _) = members[-1]
        thinned.append((at, (rows, [added(parts) for parts in named.values()])))
    return thinned


def checked(values: Any) -> Histogram:
    """Return the histogram whose fields are a JSON list. Raises TypeError and ValueError."""
    name, (exponent, first, counts), lowest, highest, at_bounds = values
    bins = Bins(int(exponent), int(first), [int(count) for count in counts])
    histogram = Histogram(str(name), bins, float(lowest), float(highest), float(at_bounds))
    numbers = (histogram.lowest, histogram.highest, histogram.at_bounds)
    if not (
        1 <= len(bins.counts) <= MOST_BINS
        and min(bins.counts) >= 0
        and _LEAST_EXPONENT <= bins.exponent <= _LARGEST_EXPONENT
        and abs(bins.first) < 1 << 62
        and all(map(math.isfinite, numbers))
    ):
        raise ValueError(f"{values!r} is not a histogram")
    return histogram
