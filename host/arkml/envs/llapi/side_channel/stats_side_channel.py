"""Numbers that an environment tells a trainer."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping
from enum import Enum

from arkml.envs.llapi.side_channel import IncomingMessage, SideChannel


class StatsAggregationMethod(Enum):
    """What becomes of several values of one period."""

    AVERAGE = 0
    MOST_RECENT = 1
    SUM = 2
    HISTOGRAM = 3


StatList = list[tuple[float, StatsAggregationMethod]]
EnvironmentStats = Mapping[str, StatList]


class StatsSideChannel(SideChannel):
    """Keeps values by name until they are asked for."""

    def __init__(self) -> None:
        super().__init__(uuid.UUID("a1d8f7b7-cec8-50f9-b78b-d3e165a78520"))
        self.stats: defaultdict[str, StatList] = defaultdict(list)

    def on_message_received(self, msg: IncomingMessage) -> None:
        name, value = msg.read_string(), msg.read_float32()
        self.stats[name].append((value, StatsAggregationMethod(msg.read_int32())))

    def get_and_reset_stats(self) -> EnvironmentStats:
        """The values since the last call."""
        found, self.stats = self.stats, defaultdict(list)
        return found
