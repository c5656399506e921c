"""Records: named numbers, texts, times and arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, KeysView, Mapping
from datetime import datetime
from statistics import fmean, median
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.base.sealed import Sealed
from arkml.errors import ArkmlError, UsageError

RecordValue = float | str | datetime | npt.NDArray[np.float32]
"""A scalar, a text, a time, or an array of one to three dimensions."""

_MOST_DIMENSIONS = 3


class LrrError(ArkmlError):
    """Raised when a record lacks the requested value."""


class Record:
    """A record of training values by name, in order of insertion."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        self._values: dict[str, RecordValue] = {}
        for name, value in dict(values).items():
            self.insert(name, value)

    @classmethod
    def empty(cls) -> Record:
        """Return an empty record."""
        return cls()

    @classmethod
    def from_scalar(cls, name: str, value: float) -> Record:
        """Return a record with one number."""
        return cls({name: value})

    @classmethod
    def from_slice(cls, values: Iterable[tuple[str, Any]]) -> Record:
        """Return a record from pairs of name and value."""
        return cls(values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[tuple[str, RecordValue]]:
        return iter(self._values.items())

    def __repr__(self) -> str:
        return f"Record({self._values!r})"

    @property
    def is_empty(self) -> bool:
        """True if there are no values."""
        return not self._values

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._values.keys()

    def insert(self, name: str, value: Any) -> None:
        """Set a value. Raises UsageError if a record cannot hold its type."""
        self._values[name] = _checked(name, value)

    def get(self, name: str) -> RecordValue | None:
        """Return a value, None if the name is unknown."""
        return self._values.get(name)

    def merge(self, other: Record) -> Record:
        """Return a record with the values of both; `other` overrides."""
        merged = Record()
        merged._values = self._values | other._values
        return merged

    def merge_inplace(self, other: Record) -> None:
        """Add the values of another record, which override."""
        self._values |= other._values

    def get_scalar(self, name: str) -> float:
        """Return a number. Raises LrrError if the name has none."""
        value = self._named(name)
        if not isinstance(value, float):
            raise _wrong_type(name, value, "a scalar")
        return value

    def get_string(self, name: str) -> str:
        """Return a text. Raises LrrError if the name has none."""
        value = self._named(name)
        if not isinstance(value, str):
            raise _wrong_type(name, value, "a string")
        return value

    def get_datetime(self, name: str) -> datetime:
        """Return a time. Raises LrrError if the name has none."""
        value = self._named(name)
        if not isinstance(value, datetime):
            raise _wrong_type(name, value, "a time")
        return value

    def get_array1(self, name: str) -> npt.NDArray[np.float32]:
        """Return a one-dimensional array. Raises LrrError if the name has none."""
        return self._array(name, 1)

    def get_array2(self, name: str) -> npt.NDArray[np.float32]:
        """Return a two-dimensional array. Raises LrrError if the name has none."""
        return self._array(name, 2)

    def get_array3(self, name: str) -> npt.NDArray[np.float32]:
        """Return a three-dimensional array. Raises LrrError if the name has none."""
        return self._array(name, 3)

    def get_scalar_without_key(self) -> float | None:
        """Return the only value if it is a number, else None."""
        values = list(self._values.values())
        return values[0] if len(values) == 1 and isinstance(values[0], float) else None

    def _named(self, name: str) -> RecordValue:
        try:
            return self._values[name]
        except KeyError:
            names = ", ".join(map(repr, self._values)) or "nothing"
            raise LrrError(f"a record of {names} has no value {name!r}") from None

    def _array(self, name: str, dimensions: int) -> npt.NDArray[np.float32]:
        value = self._named(name)
        if not isinstance(value, np.ndarray) or value.ndim != dimensions:
            raise _wrong_type(name, value, f"an array of dimension {dimensions}")
        return value


class RecordStorage(Sealed):
    """Records until the next flush: numbers are summarized, other values replaced by the latest."""

    def __init__(self) -> None:
        self._records: list[Record] = []

    def store(self, record: Record) -> None:
        """Add a record."""
        self._records.append(record)

    def aggregate(self) -> Record:
        """
        Return one record that summarizes all stored ones, and drop them.

        A number NAME becomes `NAME_min`, `NAME_max`, `NAME_mean` and `NAME_median`. Raises
        LrrError, keeping the records, if a name has values of different types.
        """
        values: dict[str, list[RecordValue]] = {}
        for record in self._records:
            for name, value in record:
                values.setdefault(name, []).append(value)
        whole = Record()
        for name, found in values.items():
            for value in found:
                if type(value) is not type(found[-1]):
                    raise _wrong_type(name, value, f"a {type(found[-1]).__name__} as elsewhere")
            whole.merge_inplace(_summary(name, found))
        self._records.clear()
        return whole


def _summary(name: str, values: list[RecordValue]) -> Record:
    numbers = [value for value in values if isinstance(value, float)]
    if not numbers:
        return Record({name: values[-1]})
    if any(map(math.isnan, numbers)):
        return Record({f"{name}_{key}": math.nan for key in ("min", "max", "mean", "median")})
    return Record(
        {
            f"{name}_min": min(numbers),
            f"{name}_max": max(numbers),
            f"{name}_mean": fmean(numbers),
            f"{name}_median": median(numbers),
        }
    )


def _checked(name: str, value: Any) -> RecordValue:
    if isinstance(value, str | datetime):
        return value
    try:
        array = np.asarray(value, np.float32) if np.ndim(value) else None
        if array is None:
            return float(value)
    except (TypeError, ValueError):
        raise UsageError(
            f"the value {name!r} of a record is {value!r}, which is neither a number, a text, a"
            " time nor an array of numbers"
        ) from None
    if array.ndim > _MOST_DIMENSIONS:
        raise UsageError(
            f"the value {name!r} of a record is an array of {array.ndim} dimensions, at most"
            f" {_MOST_DIMENSIONS} are allowed"
        )
    return array


def _wrong_type(name: str, value: RecordValue, wanted: str) -> LrrError:
    shown = f"an array of dimension {value.ndim}" if isinstance(value, np.ndarray) else repr(value)
    return LrrError(f"the value {name!r} of a record is {shown}, not {wanted}")
