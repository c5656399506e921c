"""The channel for numbers that the player reports for the trainer's log."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping
from enum import Enum

from arkml.envs.llapi.side_channel import IncomingMessage, SideChannel

_MOST_VALUES = 65_536
_LONGEST = 1_024  # letters of a name


class StatsAggregationMethod(Enum):
    """Methods to combine the values of a summary period."""

    AVERAGE = 0
    MOST_RECENT = 1
    SUM = 2
    HISTOGRAM = 3


StatList = list[tuple[float, StatsAggregationMethod]]
EnvironmentStats = Mapping[str, StatList]


class StatsSideChannel(SideChannel):
    """
    Collects numbers that the player reports, at most 65,536 between calls of `get_and_reset_stats`.
    """

    def __init__(self) -> None:
        super().__init__(uuid.UUID("a1d8f7b7-cec8-50f9-b78b-d3e165a78520"))
        self.stats: defaultdict[str, StatList] = defaultdict(list)
        self._count = 0

    def on_message_received(self, msg: IncomingMessage) -> None:
        """Store one number. Raises ValueError for an unknown aggregation method."""
        key = msg.read_string()
        value = msg.read_float32()
        self.store(key, value, StatsAggregationMethod(msg.read_int32()))

    def store(self, key: str, value: float, method: StatsAggregationMethod) -> None:
        """Store one number, unless the limit of stored numbers is reached."""
        self._count += 1
        if self._count <= _MOST_VALUES and len(key) <= _LONGEST:
            self.stats[key].append((value, method))

    def get_and_reset_stats(self) -> EnvironmentStats:
        """Return the values since the last call, oldest first."""
        stats, self.stats, self._count = self.stats, defaultdict(list), 0
        return stats
