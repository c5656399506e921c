"""How old the policies were that acted, seen from the rows that come in."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

STALE = 4
"""A row is stale if its policy is more versions than this behind the newest."""

_REMEMBERED = 4_096


class Ages(NamedTuple):
    """Means over rows: versions behind the newest, seconds since publication, share of stale."""

    versions: float
    seconds: float
    stale: float


class PolicyLag:
    """The policy versions of the run, and the rows that came with each since the last question."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._times: list[float] = []
        self._clear()

    def publish(self, version: int, now: float) -> None:
        """A version got its number. `now`: seconds of any clock that only grows."""
        if self._numbers and version <= self._numbers[-1]:
            return
        self._numbers.append(version)
        self._times.append(now)
        del self._numbers[:-_REMEMBERED], self._times[:-_REMEMBERED]

    def count(self, versions: npt.NDArray[Any], now: float) -> None:
        """Rows came in that these versions acted at. versions: uint32, [n]; 0 is none."""
        acted = versions[versions > 0].astype(np.int64)
        if not len(acted) or not self._numbers:
            return
        behind = np.maximum(self._numbers[-1] - acted, 0)
        self._rows += len(acted)
        self._behind += int(behind.sum())
        self._stale += int((behind > STALE).sum())
        # PolicyLag of before a restart have no time here: nobody knows how old they are.
        at = np.searchsorted(self._numbers, acted, "right") - 1
        times = np.array(self._times)[at[at >= 0]]
        self._timed += len(times)
        self._seconds += float((now - times).sum())

    def take(self) -> Ages | None:
        """Ages of the policies since the last call, None if no rows came."""
        if not self._rows:
            return None
        rows = self._rows
        seconds = self._seconds / self._timed if self._timed else 0.0
        ages = Ages(self._behind / rows, seconds, self._stale / rows)
        self._clear()
        return ages

    def _clear(self) -> None:
        self._rows = self._behind = self._stale = self._timed = 0
        self._seconds = 0.0
