"""Figures of a learner's pace: updates a second, and the samples that each row gave lately."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from arkml.hive.protocol.settings import Settings

SPEED_SECONDS, RATIO_SECONDS = 10.0, 60.0
"""Seconds over which updates are counted, and over which samples and rows are compared."""


class _Mark(NamedTuple):
    """Rows and updates so far, at a time."""

    at: float
    rows: int
    updates: int


class PaceFigures:
    """
    The pace of the last seconds, from the rows and updates that a learner counts at each report.

    A sample is a row in a batch that an update learns from. An on-policy algorithm wants each row
    once in each epoch; any other algorithm wants `updates_per_row` batches for each row.
    """

    def __init__(self, settings: Settings, now: float, updates: int, *, is_on_policy: bool) -> None:
        self._batch = settings.batch_size
        self._wanted = (
            float(settings.epochs) if is_on_policy else settings.updates_per_row * self._batch
        )
        self._marks = deque([_Mark(now, 0, updates)])

    def points(self, now: float, new_rows: int, updates: int) -> Iterator[tuple[str, float]]:
        """
        Yield the figures by tag.

        Args:
            now: The present time, in seconds of a monotonic clock.
            new_rows: Rows since the last call.
            updates: Updates so far.

        """
        marks = self._marks
        marks.append(_Mark(now, marks[-1].rows + new_rows, updates))
        while len(marks) > 2 and now - marks[1].at >= RATIO_SECONDS:
            marks.popleft()
        recent = next(mark for mark in marks if now - mark.at <= SPEED_SECONDS)
        if recent is marks[-1]:
            recent = marks[-2]
        made = updates - recent.updates
        yield "pace/updates_per_second", made / max(now - recent.at, 1e-3)
        yield "pace/samples_per_insert_wanted", self._wanted
        rows = marks[-1].rows - marks[0].rows
        if rows:
            reached = (updates - marks[0].updates) * self._batch / rows
            yield "pace/samples_per_insert_reached", reached
