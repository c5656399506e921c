"""Metrics as files of TensorBoard events, under the tags of stable-baselines3."""

from __future__ import annotations

import logging
import math
import os
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from arkml.learning.event_messages import Event, Summary, hparams, masked_crc32c, scalar

log = logging.getLogger(__name__)

Points = list[tuple[str, int, float]]
Hparam = str | float | bool

HPARAM_METRICS = ("eval/mean_reward", "rollout/ep_rew_mean")
"""Metrics whose last values TensorBoard shows beside the settings of a run."""


class Recorder:
    """
    Writes one file of events in `directory`.

    With `settings` it has them for TensorBoard's plugin hparams, beside the metrics HPARAM_METRICS.
    Where the disk is full, events are lost with a warning and learning continues. The writer of
    tensorboardX is not used: it writes from a thread, which ends on a full disk, and then every
    call that adds an event blocks for ever.
    """

    def __init__(self, directory: Path, settings: Mapping[str, Hparam] | None = None) -> None:
        now = time.time()
        name = f"events.out.tfevents.{int(now)}.{socket.gethostname()}.{os.getpid()}"
        self._path = directory / name
        self._size = 0
        self._start = _record(Event(wall_time=now, file_version="brain.Event:2"))
        self._end = b""
        if settings:
            metrics = dict.fromkeys(HPARAM_METRICS)
            experiment, start, end = map(_of_summary, hparams(dict(settings), metrics))
            self._start += experiment + start
            self._end = end

    def record(self, values: Iterable[tuple[str, float]], step: int) -> Points:
        """Write values by tag at a step, and return the points of those that are finite."""
        points = [(tag, step, value) for tag, value in values if math.isfinite(value)]
        if points:
            summary = Summary()
            for tag, _, value in points:
                summary.value.extend(scalar(tag, value).value)
            try:
                self._append(_record(Event(wall_time=time.time(), step=step, summary=summary)))
            except OSError as error:
                log.warning("the events of step %d could not be written: %s", step, error)
        return points

    def end(self) -> None:
        """Write that the session has ended, for the plugin hparams; nothing without settings."""
        if self._end and self._size:
            try:
                self._append(self._end)
            except OSError as error:
                log.warning("the end of the events could not be written: %s", error)

    def _append(self, record: bytes) -> None:
        """Append a record. Raises OSError, and then the file is as before."""
        self._path.parent.mkdir(exist_ok=True)
        data = record if self._size else self._start + record
        with self._path.open("ab", buffering=0) as file:
            unwritten = memoryview(data)
            try:
                while unwritten:
                    unwritten = unwritten[file.write(unwritten) :]
            except OSError:
                file.truncate(self._size)
                raise
        self._size += len(data)


def _of_summary(values: Summary) -> bytes:
    return _record(Event(wall_time=time.time(), summary=values))


def _record(event: Event) -> bytes:
    """Return a TFRecord of an event: its length and its bytes, each with a checksum."""
    data: bytes = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    sums = (struct.pack("<I", masked_crc32c(part)) for part in (length, data))
    return length + next(sums) + data + next(sums)
