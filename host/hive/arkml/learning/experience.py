"""The rows of a run as its learner reads them: kept, normalized and counted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from arkml.errors import ProtocolError
from arkml.hive.protocol.row_split import RowSplit
from arkml.hive.protocol.rows import Record, RowColumns, RowKind
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import RowStore
from arkml.learning.normalizer import Normalizer
from arkml.learning.policy_lag import PolicyLag
from arkml.learning.row_figures import RowFigures
from arkml.learning.row_statistics import RowStatistics
from arkml.learning.run_directory import LogReader


class Experience:
    """All data that a learner derives from the log of rows, up to the position that was read."""

    def __init__(
        self, settings: Settings, log: LogReader, buffer: RowStore, normalizer: Normalizer
    ) -> None:
        self.log = log
        self.buffer = buffer
        self.rows = 0
        """Rows of the run up to the cursor of the log."""
        self.normalizer = normalizer
        self.statistics = RowStatistics(settings.max_episode_steps)
        self.policy_lag = PolicyLag()
        self.figures = RowFigures(settings)
        self._settings = settings
        self._split = RowSplit(settings.features, settings.parts)
        self._counted = 0
        self._new_rows = 0

    def ingest(self, rows: int) -> int:
        """
        Read at least `rows` committed rows, if there are that many, and return the number read.
        """
        before = self.rows
        for record in self.log.read(rows):
            self._take(record)
        return self.rows - before

    def take_new_rows(self) -> int:
        """Return the number of new rows since the last call, without rows read twice."""
        rows, self._new_rows = self._new_rows, 0
        return rows

    def as_json(self) -> dict[str, Any]:
        """
        Return the state that a restart needs, as JSON values, without rows, which are in the log.
        """
        return {
            "normalizer": self.normalizer.as_json(),
            "statistics": self.statistics.as_json(),
        }

    def restore(self, values: Mapping[str, Any], *, counted: int) -> None:
        """
        Continue from the result of `as_json` after `counted` rows of this run.

        These rows are read again to fill the replay buffer, and not counted again.
        """
        self.normalizer.restore(values["normalizer"])
        if counted:
            self.statistics.restore(values["statistics"])
        self._counted = counted

    def _take(self, record: Record) -> None:
        header, columns = record.header, record.columns
        widths = (header.features, header.actions)
        if widths != (self._settings.features, self._settings.actions):
            raise ProtocolError(
                f"rows have {widths[0]} features and {widths[1]} actions,"
                f" the run has {self._settings.features} and {self._settings.actions}"
            )
        if header.images != self._split.images:
            columns, outside = self._narrowed(columns)
            header = replace(header, outside=header.outside + outside)
        if header.dropped:
            self.buffer.cut(record.session)
        added = self.buffer.add(record.session, header.kind, columns)
        self.rows = record.first + len(columns)
        if self._counted and self.rows <= self._counted:  # else one without rows may be the first
            return
        self._new_rows += len(columns)
        self.normalizer.observe(columns.features, added.returns)
        self.statistics.count(record, added.episodes)
        if header.kind == RowKind.TRAINING:
            self.policy_lag.count(columns.version, time.monotonic())
            self.figures.add(columns, header.outside)

    def _narrowed(self, columns: RowColumns) -> tuple[RowColumns, int]:
        """
        Return rows with the bytes of their images, and how many values were clipped.

        Senders that know nothing of the parts, such as senders of demonstrations, send numbers.
        """
        if columns.images.size:
            raise ProtocolError(
                f"rows have images of {columns.images.shape[1]} values, the run has"
                f" {self._split.images}"
            )
        features, images, outside = self._split.split(columns.features)
        return replace(columns, features=features, images=images), outside
