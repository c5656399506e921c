"""Metrics as files of TensorBoard events, under the tags of stable-baselines3."""

from __future__ import annotations

import logging
import math
import os
import socket
import struct
import time
from collections.abc import Iterable
from pathlib import Path

from arkml.learning.event_messages import Event, Summary, masked_crc32c, scalar

log = logging.getLogger(__name__)

Points = list[tuple[str, int, float]]


class Recorder:
    """
    Writes one file of events in `directory`.

    Where the disk is full, events are lost with a warning and learning continues. The writer of
    tensorboardX is not used: it writes from a thread, which ends on a full disk, and then every
    call that adds an event blocks for ever.
    """

    def __init__(self, directory: Path) -> None:
        now = time.time()
        name = f"events.out.tfevents.{int(now)}.{socket.gethostname()}.{os.getpid()}"
        self._path = directory / name
        self._size = 0
        self._start = _record(Event(wall_time=now, file_version="brain.Event:2"))

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


def _record(event: Event) -> bytes:
    """Return a TFRecord of an event: its length and its bytes, each with a checksum."""
    data: bytes = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    sums = (struct.pack("<I", masked_crc32c(part)) for part in (length, data))
    return length + next(sums) + data + next(sums)
