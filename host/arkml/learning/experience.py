"""What a learner makes of the rows of its run: memory, statistics and the scale of things."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from arkml.errors import ProtocolError
from arkml.hive.protocol.rows import MAX_ROWS, Kind
from arkml.hive.protocol.segments import Record
from arkml.hive.protocol.settings import Settings
from arkml.learning.log import Log
from arkml.learning.normalizer import Normalizer
from arkml.learning.policy_lag import PolicyLag
from arkml.learning.replay_buffer import ReplayBuffer
from arkml.learning.row_statistics import Statistics


class Experience:
    """Everything that comes from the log, and how far it was read."""

    def __init__(self, settings: Settings, log: Log) -> None:
        self.log = log
        self.rows = 0
        """Rows of the run up to the cursor."""
        self.memory = ReplayBuffer(
            settings.memory_max_size,
            settings.features,
            settings.actions,
            gamma=settings.gamma,
            masking=settings.use_terminal_masking,
        )
        self.normalizer = Normalizer(settings.features, active=settings.normalize)
        self.statistics = Statistics()
        self.versions = PolicyLag()
        self._settings = settings
        self._counted = 0
        self._fresh = 0

    @property
    def is_enough(self) -> bool:
        """Whether there is enough to begin with."""
        memory = self.memory
        return memory.held >= self._settings.memory_min_size and memory.transitions > 0

    def ingest(self, rows: int = MAX_ROWS) -> int:
        """Read at least so many committed rows, if there are. Returns how many came."""
        before = self.rows
        for record in self.log.read(rows):
            self._take(record)
        return self.rows - before

    def take_fresh(self) -> int:
        """How many rows came since this was last asked, without those that came before."""
        fresh, self._fresh = self._fresh, 0
        return fresh

    def as_json(self) -> dict[str, Any]:
        """What a restart must not lose, to be written as JSON. Rows are in the log."""
        return {
            "normalizer": self.normalizer.as_json(),
            "statistics": self.statistics.as_json(),
        }

    def restore(self, values: Mapping[str, Any], *, counted: int) -> None:
        """
        Go on from what `as_json` made when `counted` rows of this run were in it.

        Those are read again to fill the memory, and not counted again.
        """
        self.normalizer.restore(values["normalizer"])
        if counted:
            self.statistics.restore(values["statistics"])
        self._counted = counted

    def _take(self, record: Record) -> None:
        header, columns = record.header, record.columns
        widths = (header.features, header.actions)
        if widths != (self._settings.features, self._settings.actions):
            raise ProtocolError(f"rows have {widths} features and actions, not those of the run")
        if header.dropped:
            self.memory.cut(record.session)
        added = self.memory.add(record.session, header.kind, columns)
        self.rows = record.first + len(columns)
        if self.rows <= self._counted:
            return
        self._fresh += len(columns)
        self.normalizer.observe(columns.features, added.returns)
        self.statistics.count(record, added.episodes)
        if header.kind == Kind.TRAINING:
            self.versions.count(columns.version, time.monotonic())
