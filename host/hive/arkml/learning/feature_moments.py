"""
Statistics of features: of single ones, or of all features with one meaning in entities and grids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.arrays import Marks
from arkml.batches import Floats
from arkml.hive.protocol.parts import Part, RowField, bound_of, fields_of
from arkml.learning.robust_moments import RobustMoments

Doubles = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

FEATURE_REACH = 30.0
"""Deviations from the mean from which on a feature is an outlier."""


class FeatureMoments:
    """
    Mean and deviation of each feature of a row.

    Statistics of a feature of entities are over all entities that existed, and of a channel of a
    grid over all cells. For counts and categories no statistics are needed, since their bounds are
    known.

    Attributes:
        is_known: Which features have known bounds: bool, [F].
        largest: The largest value of each feature with known bounds, 1 for others: float64, [F].

    """

    def __init__(self, features: int, parts: Sequence[Part] = ()) -> None:
        fields = fields_of(parts)
        self.is_known: Marks = np.zeros(features, bool)
        self.largest: Doubles = np.ones(features)
        self._columns: list[_Columns] = []
        plain: list[Places] = []
        for field in fields:
            places = np.arange(features)[field.columns]
            bound = bound_of(field)
            if bound:
                self.is_known[places], self.largest[places] = True, bound
            elif field.part.kind == "vector":
                plain.append(places)
            else:
                self._columns.append(_Columns(places, field.shape[-1], _taker(field)))
        if not parts:
            self._columns = [_Columns(np.arange(features), features, lambda rows: rows)]
        elif plain:
            each = np.concatenate(plain)
            self._columns.insert(0, _Columns(each, len(each), lambda rows: rows[:, each]))
        self._has_parts = bool(parts)
        self._features = features
        self._rows = 0

    @property
    def count(self) -> int:
        """Number of rows added."""
        return self._rows

    @property
    def mean(self) -> Doubles:
        """The mean of each feature, 0 where bounds are known: float64, [F]."""
        return self._each(lambda columns: columns.moments.mean)

    @property
    def deviation(self) -> Doubles:
        """The standard deviation of each feature, 0 where bounds are known: float64, [F]."""
        return self._each(lambda columns: columns.moments.deviation)

    @property
    def reach(self) -> Doubles:
        """
        The distance from the mean of the furthest value that is no outlier: float64, [F].

        0 where bounds are known.
        """
        return self._each(lambda columns: columns.reach)

    @property
    def is_whole(self) -> Marks:
        """Which features had only whole numbers so far: bool, [F]."""
        return self._each(lambda columns: columns.is_whole).astype(bool)

    def add(self, rows: Floats) -> None:
        """Add rows to the statistics: float32, [n, F], finite."""
        self._rows += len(rows)
        for columns in self._columns:
            columns.add(rows)

    def as_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        if not self._has_parts:
            (only,) = self._columns
            return {"features": only.moments.as_json(), "whole": only.is_whole.tolist()}
        return {
            "rows": self._rows,
            "parts": [
                {"features": one.moments.as_json(), "whole": one.is_whole.tolist()}
                for one in self._columns
            ],
        }

    def restore(self, values: Mapping[str, Any]) -> None:
        """Continue from the result of `as_json`. Raises ValueError if it has other widths."""
        parts = values["parts"] if self._has_parts else [values]
        if len(parts) != len(self._columns):
            raise ValueError(f"statistics of {len(parts)} parts: expected {len(self._columns)}")
        for columns, part in zip(self._columns, parts, strict=True):
            columns.restore(part)
        self._rows = int(values["rows"]) if self._has_parts else self._columns[0].moments.count

    def _each(self, of: Callable[[_Columns], npt.NDArray[Any]]) -> Doubles:
        values = np.zeros(self._features)
        for columns in self._columns:
            values[columns.places] = np.resize(of(columns), len(columns.places))
        return values


class _Columns:
    """
    Features with statistics in common: `width` of them, again and again.

    places: int64, [k * width], of the features in a row. take: returns the values of rows, float32,
    [m, width].
    """

    def __init__(self, places: Places, width: int, take: Callable[[Floats], Floats]) -> None:
        self.places = places
        self.moments = RobustMoments(width, FEATURE_REACH)
        self.is_whole: Marks = np.ones(width, bool)
        self._take = take

    def add(self, rows: Floats) -> None:
        values = self._take(rows)
        self.moments.add(values)
        asked = np.flatnonzero(self.is_whole)
        if len(asked):
            if len(asked) < len(self.is_whole):
                values = values[:, asked]
            self.is_whole[asked] = (values == np.rint(values)).all(axis=0)

    @property
    def reach(self) -> Doubles:
        low, high = self.moments.bounds
        return np.maximum(high - self.moments.mean, self.moments.mean - low)

    def restore(self, values: Mapping[str, Any]) -> None:
        width = len(self.is_whole)
        # Checkpoints of earlier releases do not tell.
        is_whole = np.array(values.get("whole", [False] * width), bool)
        if is_whole.shape != (width,):
            raise ValueError(f"{len(is_whole)} features are whole or not: expected {width}")
        self.moments.restore(values["features"])
        self.is_whole = is_whole


def _taker(field: RowField) -> Callable[[Floats], Floats]:
    """Return a function that takes the values of entities that are there, or of all cells."""
    width = field.shape[-1]
    if field.part.kind != "entities":
        return lambda rows: rows[:, field.columns].reshape(-1, width)
    most = np.arange(field.shape[0], dtype=np.float32)

    def entities(rows: Floats) -> Floats:
        is_there = most < rows[:, field.start - 1, None]
        return rows[:, field.columns].reshape(len(rows), -1, width)[is_there]

    return entities
