"""Mean and variance of columns, which a few extreme outliers do not change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.batches import chunks

Doubles = npt.NDArray[np.float64]

RESOLUTION = 1e-6
"""Smallest deviation that counts, relative to the mean: float32 resolves no smaller steps."""

REWARD_REACH = 1e9
"""
Deviations from the mean from which on a reward or a return is an outlier. A rare reward may be the
whole task beside the rounding errors of others, so only what is out of all proportion counts as
one.
"""

FIRST = 256
"""Number of the first rows, which are judged together."""

_CHANGED = 0.1
"""Share of outliers among the latest rows from which on they are a change and no outliers."""

_ANY = 1e15
"""Distance up to which a value is believed where a column has been constant."""

_CHUNK = 1_024  # rows


class Moments:
    """
    Count, mean and variance of columns, updated batch by batch (Chan, Golub and LeVeque).

    mean, variance: float64, [width].
    """

    def __init__(self, width: int) -> None:
        self.count = 0.0
        self.mean: Doubles = np.zeros(width)
        self._squares: Doubles = np.zeros(width)

    @property
    def variance(self) -> Doubles:
        """Population variance of each column."""
        return self._squares / max(self.count, 1.0)

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add a batch of values: float32 or float64, [n, width]."""
        count = len(values)
        if not count:
            return
        centered = values.astype(np.float64)
        mean = centered.mean(axis=0)
        centered -= mean
        squares = np.einsum("ij,ij->j", centered, centered)
        shift = mean - self.mean
        total = self.count + count
        self.mean = self.mean + shift * (count / total)
        self._squares = self._squares + squares + np.square(shift) * (self.count * count / total)
        self.count = total

    def as_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "count": self.count,
            "mean": self.mean.tolist(),
            "squares": self._squares.tolist(),
        }

    def restore(self, values: Mapping[str, Any]) -> None:
        """Continue from the result of `as_json`. Raises ValueError if it has another width."""
        mean, squares = columns_of(values, ("mean", "squares"), len(self.mean))
        self.count, self.mean, self._squares = float(values["count"]), mean, squares


class RobustMoments:
    """
    Mean and variance of columns, in which each outlier is replaced by the mean.

    A value is an outlier if it is further than `reach` deviations from the mean of its column. For
    the first rows, medians are used instead. If a tenth of a column's latest rows are outliers, the
    column has changed: from then on, values at their distance count. A column that was constant so
    far has no deviation: its first other values count up to a distance of 1e15, and later ones up
    to the distance of these.
    """

    def __init__(self, width: int, reach: float) -> None:
        self._reach = reach
        self._moments = Moments(width)
        self._low: Doubles = np.zeros(width)
        self._high: Doubles = np.zeros(width)
        self._first: list[npt.NDArray[Any]] = []
        self._is_judged = True  # the rows of `_first` are in the moments
        self._least: Doubles = np.zeros(width)  # deviations of columns that have changed
        # Of the latest rows: their number, outliers in each column, sums of log2 of distances.
        self._latest = 0
        self._outliers: Doubles = np.zeros(width)
        self._logs: Doubles = np.zeros(width)
        self._count = 0

    @property
    def count(self) -> int:
        """Number of rows added."""
        return self._count

    @property
    def mean(self) -> Doubles:
        """Mean of each column: float64, [width]."""
        self._judge_first()
        return self._moments.mean

    @property
    def deviation(self) -> Doubles:
        """Standard deviation of each column, float64, [width]; 0 for constant columns."""
        self._judge_first()
        deviation = np.sqrt(self._moments.variance)
        return np.where(deviation > RESOLUTION * np.abs(self._moments.mean), deviation, 0.0)

    @property
    def bounds(self) -> tuple[Doubles, Doubles]:
        """Smallest and largest value of each column that is not an outlier, 0 without any."""
        self._judge_first()
        return self._low, self._high

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add rows: float32 or float64, [n, width], finite."""
        begun = max(0, min(FIRST - self._count, len(values)))
        self._count += len(values)
        if begun:
            self._first.append(values[:begun].astype(np.float64))
            self._is_judged = False
        if begun == len(values):
            return
        self._judge_first()
        self._first = []
        rest = values[begun:]
        for rows in chunks(len(rest), _CHUNK):
            self._add(rest[rows])

    def as_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        self._judge_first()
        return {
            "moments": self._moments.as_json(),
            "low": self._low.tolist(),
            "high": self._high.tolist(),
            "first": np.concatenate(self._first).tolist() if self._first else [],
            "least": self._least.tolist(),
            "latest": self._latest,
            "outliers": self._outliers.tolist(),
            "logs": self._logs.tolist(),
            "count": self._count,
        }

    def restore(self, values: Mapping[str, Any]) -> None:
        """Continue from the result of `as_json`. Raises ValueError if it has another width."""
        width = len(self._least)
        names = ("low", "high", "least", "outliers", "logs")
        arrays = columns_of(values, names, width)
        first = np.array(values["first"], np.float64)
        if len(first) and first.shape[1:] != (width,):
            raise ValueError(f"first rows of shape {first.shape}: expected {width} columns")
        self._moments.restore(values["moments"])
        self._low, self._high, self._least, self._outliers, self._logs = arrays
        self._first = [first] if len(first) else []
        self._is_judged = True
        self._latest, self._count = int(values["latest"]), int(values["count"])

    def _judge_first(self) -> None:
        """Put the first rows into the moments, without their outliers."""
        if self._is_judged:
            return
        rows = np.concatenate(self._first)
        center = np.median(rows, axis=0)
        distances = np.abs(rows - center)
        usual = np.sort(distances, axis=0)[int((1.0 - _CHANGED) * (len(rows) - 1))]
        rows = np.where(distances > self._farthest(center, usual), center, rows)
        self._moments = Moments(len(center))
        self._moments.add(rows)
        self._low, self._high = rows.min(axis=0), rows.max(axis=0)
        self._is_judged = True

    def _farthest(self, center: Doubles, deviation: Doubles) -> Doubles:
        """Return the largest distance from the center that is not an outlier's."""
        is_known = deviation > RESOLUTION * np.abs(center)
        return np.where(is_known, self._reach * deviation, _ANY)

    def _add(self, values: npt.NDArray[Any]) -> None:
        center = self._moments.mean
        deviation = np.maximum(np.sqrt(self._moments.variance), self._least)
        farthest = self._farthest(center, deviation)
        low, high = values.min(axis=0), values.max(axis=0)
        if ((low < center - farthest) | (high > center + farthest)).any():
            values = self._without_outliers(values, center, farthest)
            low, high = values.min(axis=0), values.max(axis=0)
        if not deviation.all():  # columns that have been constant
            furthest = np.maximum(high - center, center - low)
            self._least = np.where(deviation > 0.0, self._least, furthest)
        self._moments.add(values)
        self._low = np.minimum(self._low, low)
        self._high = np.maximum(self._high, high)
        self._latest += len(values)
        if self._latest >= FIRST:
            self._notice_changes()

    def _without_outliers(
        self, values: npt.NDArray[Any], center: Doubles, farthest: Doubles
    ) -> Doubles:
        distances = np.abs(values - center)
        is_outlier = distances > farthest
        self._outliers = self._outliers + is_outlier.sum(axis=0)
        self._logs = self._logs + np.log2(distances, where=is_outlier, out=0.0 * distances).sum(0)
        return np.where(is_outlier, center, values)

    def _notice_changes(self) -> None:
        """Believe the outliers of columns that have many of them, from their mean distance on."""
        changed = self._outliers >= _CHANGED * self._latest
        distances = np.exp2(self._logs / np.maximum(self._outliers, 1.0))
        self._least = np.where(changed, distances, self._least)
        self._latest = 0
        self._outliers, self._logs = 0.0 * self._outliers, 0.0 * self._logs


def columns_of(values: Mapping[str, Any], names: Sequence[str], width: int) -> list[Doubles]:
    """Return arrays of JSON values: float64, [width] each. Raises ValueError for others."""
    arrays = [np.array(values[name], np.float64) for name in names]
    for name, array in zip(names, arrays, strict=True):
        if array.shape != (width,) or not np.isfinite(array).all():
            raise ValueError(f"{name} has the shape {array.shape}: expected {width} finite numbers")
    return arrays
