"""Writes metrics as TensorBoard events, under the tags that users of stable-baselines3 know."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from pathlib import Path

from tensorboardX import SummaryWriter

log = logging.getLogger(__name__)

Points = list[tuple[str, int, float]]


class Recorder:
    """
    One file of events for each life of a learner, in `directory`.

    A disk that is full loses events, not the run: what it cannot write it logs.
    """

    def __init__(self, directory: Path) -> None:
        self._writer = SummaryWriter(str(directory), flush_secs=5)

    def record(self, values: Iterable[tuple[str, float]], step: int) -> Points:
        """Write values by tag at a step, and return the points; what is not finite has none."""
        points = [(tag, step, value) for tag, value in values if math.isfinite(value)]
        try:
            for tag, _, value in points:
                self._writer.add_scalar(tag, value, step)
        except OSError as error:
            log.warning("no events were written at step %d: %s", step, error)
        return points

    def close(self) -> None:
        """Write what is left."""
        try:
            self._writer.close()
        except OSError as error:
            log.warning("the last events were not written: %s", error)
