"""Writes metrics as TensorBoard events, under the tags that users of stable-baselines3 know."""

from __future__ import annotations

import logging
import math
import os
import socket
import struct
import time
from collections.abc import Iterable
from pathlib import Path

from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c
from tensorboardX.summary import scalar

log = logging.getLogger(__name__)

Points = list[tuple[str, int, float]]


class Recorder:
    """
    One file of events for each life of a learner, in `directory`.

    A disk that is full loses events, not the run: what it cannot write it logs. It writes by
    itself: the writer of tensorboardX has a thread, and once that has met a full disk whoever
    hands it events waits for ever.
    """

    def __init__(self, directory: Path) -> None:
        now = time.time()
        name = f"events.out.tfevents.{int(now)}.{socket.gethostname()}.{os.getpid()}"
        self._path = directory / name
        self._size = 0
        self._start = _record(Event(wall_time=now, file_version="brain.Event:2"))

    def record(self, values: Iterable[tuple[str, float]], step: int) -> Points:
        """Write values by tag at a step, and return the points; what is not finite has none."""
        points = [(tag, step, value) for tag, value in values if math.isfinite(value)]
        if points:
            summary = Summary()
            for tag, _, value in points:
                summary.value.extend(scalar(tag, value).value)
            try:
                self._append(_record(Event(wall_time=time.time(), step=step, summary=summary)))
            except OSError as error:
                log.warning("no events were written at step %d: %s", step, error)
        return points

    def _append(self, record: bytes) -> None:
        """Add a record. Raises OSError; then the file is as it was."""
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
    """An event as TensorBoard reads it: its length and itself, each with a checksum."""
    data: bytes = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    sums = (struct.pack("<I", masked_crc32c(part)) for part in (length, data))
    return length + next(sums) + data + next(sums)
