"""Metrics of a learner's pace: updates a second, and recent samples for each row."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from arkml.hive.protocol.settings import Settings

SPEED_SECONDS, RATIO_SECONDS = 10.0, 60.0
"""Seconds over which updates are counted, and over which samples and rows are compared."""


class _Mark(NamedTuple):
    """Rows, updates and samples so far, at a time."""

    at: float
    rows: int
    updates: int
    samples: int


class PaceFigures:
    """
    Measures a learner's pace over the last seconds, from the rows and updates in its reports.

    A sample is a row in a batch that an update learns from. An on-policy algorithm wants each row
    once in each epoch; any other algorithm wants `updates_per_row` batches for each row.
    """

    def __init__(self, now: float, updates: int, *, is_on_policy: bool) -> None:
        self._is_on_policy = is_on_policy
        self._marks = deque([_Mark(now, 0, updates, 0)])

    def points(
        self, now: float, new_rows: int, updates: int, settings: Settings
    ) -> Iterator[tuple[str, float]]:
        """
        Yield the metrics of the pace as pairs (tag, value).

        Args:
            now: The present time, in seconds of a monotonic clock.
            new_rows: Rows since the last call.
            updates: Updates so far.
            settings: The settings of the updates since the last call.

        """
        marks = self._marks
        rows, samples = marks[-1].rows + new_rows, marks[-1].samples
        samples += (updates - marks[-1].updates) * settings.batch_size
        marks.append(_Mark(now, rows, updates, samples))
        while len(marks) > 2 and now - marks[1].at >= RATIO_SECONDS:
            marks.popleft()
        recent = next(mark for mark in marks if now - mark.at <= SPEED_SECONDS)
        if recent is marks[-1]:
            recent = marks[-2]
        made = updates - recent.updates
        yield "pace/updates_per_second", made / max(now - recent.at, 1e-3)
        wanted = settings.updates_per_row * settings.batch_size
        yield (
            "pace/samples_per_insert_wanted",
            float(settings.epochs) if self._is_on_policy else wanted,
        )
        rows -= marks[0].rows
        if rows:
            yield "pace/samples_per_insert_reached", (samples - marks[0].samples) / rows
