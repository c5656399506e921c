"""Recording of metrics as TensorBoard event files, under the tags of stable-baselines3."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from arkml.base.loggers import SafeLogger
from arkml.hive.protocol.reports import HOUR, SECOND, Point, ReportClock
from arkml.learning.event_files import EventFiles, record_of
from arkml.learning.event_messages import Event, Summary, hparams, scalar

log = SafeLogger(__name__)

Points = list[Point]
Hparam = str | float | bool

HPARAM_METRICS = ("eval/mean_reward", "rollout/ep_rew_mean")
"""Metrics whose last values TensorBoard shows beside the settings of a run."""


class Recorder:
    """
    Writes event files in `directory`, a new one each hour; old files are thinned to fewer events.

    With `settings` the first file describes them for TensorBoard's plugin hparams, beside the
    metrics HPARAM_METRICS. On a full disk, events are lost with a warning and learning continues.
    The writer of tensorboardX is not used: its thread ends on a full disk, and then every call that
    adds an event blocks for ever.
    """

    def __init__(self, directory: Path, settings: Mapping[str, Hparam] | None = None) -> None:
        self._directory = directory
        self._files = EventFiles(directory)
        self._clock = ReportClock((max(self._files.times(), default=-1) + 1) * SECOND)
        self._begun = 0
        self._path = Path()
        self._size = 0
        self._is_first = True
        self._hparams = self._end = b""
        if settings:
            metrics = dict.fromkeys(HPARAM_METRICS)
            experiment, start, self._end = map(self._of_summary, hparams(dict(settings), metrics))
            self._hparams = experiment + start

    def record(self, values: Iterable[tuple[str, float]], step: int) -> Points:
        """Write pairs (tag, value) at a step, and return the points with finite values."""
        points = [(tag, step, value) for tag, value in values if math.isfinite(value)]
        if points:
            summary = Summary()
            for tag, _, value in points:
                summary.value.extend(scalar(tag, value).value)
            now = self._clock.now()
            event = Event(wall_time=now / SECOND, step=step, summary=summary)
            try:
                self._append(record_of(event), now)
            except OSError as error:
                log.warning("the events of step %d could not be written: %s", step, error)
            try:
                self._files.thin_next()
            except Exception as error:  # noqa: BLE001  protobuf has errors of its own
                log.warning("old events could not be thinned: %s", error)
        return points

    def end(self) -> None:
        """Write the end of the session for TensorBoard's plugin hparams, if there are settings."""
        if self._end and self._begun:
            try:
                self._append(self._end, self._begun)
            except OSError as error:
                log.warning("the end of the events could not be written: %s", error)

    def _append(self, record: bytes, now: int) -> None:
        """Append a record. Raises OSError, and then the file is as before."""
        self._directory.mkdir(exist_ok=True)
        if not self._begun or now - self._begun >= HOUR:
            self._begin(now)
        data = record if self._size else self._start() + record
        with self._path.open("ab", buffering=0) as file:
            unwritten = memoryview(data)
            try:
                while unwritten:
                    unwritten = unwritten[file.write(unwritten) :]
            except OSError:
                file.truncate(self._size)
                raise
        self._size += len(data)
        self._is_first = False

    def _begin(self, now: int) -> None:
        """Begin another file; earlier files are thinned from now on."""
        self._begun, self._size = now, 0
        name = f"events.out.tfevents.{now // SECOND}.{socket.gethostname()}.{os.getpid()}"
        self._path = self._directory / name
        self._files.begin(self._path)

    def _start(self) -> bytes:
        start = record_of(Event(wall_time=self._begun / SECOND, file_version="brain.Event:2"))
        return start + self._hparams if self._is_first else start

    def _of_summary(self, values: Summary) -> bytes:
        return record_of(Event(wall_time=self._clock.now() / SECOND, summary=values))
