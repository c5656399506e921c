"""Policy lag: how far the versions that acted are behind the newest version."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

STALE = 4
"""A row is stale if its policy is more versions than this behind the newest."""

_REMEMBERED = 4_096


class PolicyAges(NamedTuple):
    """
    Mean ages of the policies that acted: in versions, in seconds, and the fraction of stale rows.
    """

    versions: float
    seconds: float
    stale: float


class PolicyLag:
    """The policy versions of a run, and how many rows each acted on since ages were last taken."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._times: list[float] = []
        self._clear()

    def publish(self, version: int, now: float) -> None:
        """Add a published version. `now`: seconds of a monotonic clock."""
        if self._numbers and version <= self._numbers[-1]:
            return
        self._numbers.append(version)
        self._times.append(now)
        del self._numbers[:-_REMEMBERED], self._times[:-_REMEMBERED]

    def count(self, versions: npt.NDArray[Any], now: float) -> None:
        """
        Count rows by the policy versions that acted on them.

        versions: uint32, [n], 0 where no policy acted. `now`: seconds of the same clock.
        """
        acted = versions[versions > 0].astype(np.int64)
        if not len(acted) or not self._numbers:
            return
        behind = np.maximum(self._numbers[-1] - acted, 0)
        self._rows += len(acted)
        self._behind += int(behind.sum())
        self._stale += int((behind > STALE).sum())
        # Versions from before a restart are not in the list: their age is unknown.
        at = np.searchsorted(self._numbers, acted, "right") - 1
        times = np.array(self._times)[at[at >= 0]]
        self._timed += len(times)
        self._seconds += float((now - times).sum())

    def take(self) -> PolicyAges | None:
        """Return mean ages since the last call, None if no rows were counted."""
        if not self._rows:
            return None
        rows = self._rows
        seconds = self._seconds / self._timed if self._timed else 0.0
        ages = PolicyAges(self._behind / rows, seconds, self._stale / rows)
        self._clear()
        return ages

    def _clear(self) -> None:
        self._rows = self._behind = self._stale = self._timed = 0
        self._seconds = 0.0
