"""The directory of a run as its learner uses it: the request, the log of rows, and policies."""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from arkml.base.files import open_file, read_plain, write_atomic
from arkml.base.loggers import SafeLogger
from arkml.errors import HiveError, ProtocolError
from arkml.hive.protocol.documents import parse_object
from arkml.hive.protocol.rows import Place, Record, find_record, segment_name
from arkml.hive.protocol.runs import ORIGIN_FILE, RunRequest
from arkml.learning.algorithm import PolicyModel
from arkml.learning.checkpoint_files import Checkpoint, Checkpoints, read_checkpoint

log = SafeLogger(__name__)

_ORIGIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]*)(?:@(\d{1,12}))?")
_START = Place(0, 0)

INTERVAL = 0.05
"""
Least seconds from one published policy to the next.

With 0.25 a cart-pole that stands falls again more often: rows come from older policies.
"""

KEPT = 16
"""Published policies that stay on disk; link or copy one to keep it longer."""

_SHARE = 0.1  # largest share of the time that exports take


class NoCheckpoint(HiveError):
    """Raised when the checkpoint that a run is to start from does not exist."""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """
    The directory of a run. A learner reads `rows`, and writes `checkpoints`, `policies`, `events`.

    `names` are the names of the guest's metrics, in the order of their numbers.
    """

    directory: Path
    id: str
    request: RunRequest
    names: tuple[str, ...]

    @classmethod
    def open(cls, directory: Path) -> RunDirectory:
        """Read `run.json`. Raises ProtocolError or InvalidSettings if it cannot be used."""
        try:
            values = parse_object(read_plain(directory / "run.json", follow=False))
            names = tuple(str(name) for name in values.get("names", ()))
            return cls(directory, str(values["id"]), RunRequest.from_json(values["request"]), names)
        except (
            ProtocolError, OSError, KeyError, TypeError, ValueError, AttributeError,
        ) as error:  # fmt: skip
            raise ProtocolError(f"{directory.name} has no valid run.json: {error}") from error

    @property
    def checkpoints(self) -> Checkpoints:
        """The run's own checkpoints."""
        return Checkpoints(self.directory / "checkpoints")

    def find_start(self) -> Checkpoint | None:
        """
        Return the checkpoint to continue from, None to begin anew.

        This is the run's own newest checkpoint or, without one, the checkpoint that the request
        names.

        Raises:
            NoCheckpoint: The named checkpoint does not exist.
            CheckpointDamaged: The named checkpoint cannot be loaded.
            CheckpointOutdated: All checkpoints were written by an earlier version of arkml.
            InvalidSettings: The named checkpoint has other shapes.

        """
        own = self.checkpoints.newest()
        if own is not None or not self.request.checkpoint:
            return own
        return self._origin(self.request.checkpoint)

    def _origin(self, name: str) -> Checkpoint:
        runs, settings = self.directory.parent, self.request.settings
        if name == ORIGIN_FILE:
            return read_checkpoint(runs.parent / ORIGIN_FILE, settings, follow=False)
        match = _ORIGIN.fullmatch(name)
        if match is None:
            raise NoCheckpoint(f"checkpoint {name!r} is not of the form RUN or RUN@UPDATES")
        source = Checkpoints(runs / match[1] / "checkpoints")
        number = None if match[2] is None else int(match[2])
        checkpoint = source.newest(settings) if number is None else source.find(number, settings)
        if checkpoint is None:
            raise NoCheckpoint(f"there is no checkpoint {name!r}")
        return checkpoint


class LogReader:
    """
    Reads the rows in the log of a run: the segments in `directory`, mapped read-only.

    Nothing beyond the committed position is read, and no record is returned twice. Segments that
    were deleted before they were read are skipped, and so are damaged records.
    """

    def __init__(self, directory: Path) -> None:
        self.cursor = _START
        """The place up to which the log has been read."""
        self.lost = 0
        """Damaged rows between the rows that have been read."""
        self._rows: int | None = None  # rows before the next record, if known
        self._directory = directory
        self._committed = _START
        self._number = 0
        self._mapped: mmap.mmap | None = None
        self._view: memoryview | None = None

    @property
    def is_read(self) -> bool:
        """True if everything committed has been read."""
        return self.cursor >= self._committed

    def commit(self, place: Place) -> None:
        """Allow reading up to the position `place`."""
        self._committed = max(self._committed, place)

    def read(self, rows: int) -> Iterator[Record]:
        """Yield the next records, until at least `rows` rows or the last committed one."""
        while rows > 0 and not self.is_read:
            record = self._record()
            if record is None:
                self._skip_segment()
                continue
            self._count_damage(record)
            self.cursor = Place(self.cursor.segment, record.end)
            rows -= len(record.columns)
            yield record

    def _record(self) -> Record | None:
        """Return the next record in the segment of the cursor, None if it has no more."""
        number, offset = self.cursor
        data = self._map(number)
        if data is None:
            self._rows = None
            return None
        committed = self._committed
        until = committed.offset if number == committed.segment else len(data)
        return find_record(data, offset, until)

    def _count_damage(self, record: Record) -> None:
        """Count the damaged rows before a record."""
        lost = 0 if self._rows is None else record.first - self._rows
        if lost or record.start > self.cursor.offset:
            log.warning(
                "segment %d has %d damaged bytes at %d: %d rows are lost to learning",
                self.cursor.segment, record.start - self.cursor.offset, self.cursor.offset, lost,
            )  # fmt: skip
        self.lost += lost
        self._rows = record.first + len(record.columns)

    def _skip_segment(self) -> None:
        """Move the cursor to the next segment on disk, or to the end of the committed records."""
        number, offset = self.cursor
        committed = self._committed
        if number == committed.segment:
            log.warning(
                "segment %d cannot be read from byte %d to %d, though its rows are acknowledged",
                number, offset, committed.offset,
            )  # fmt: skip
            self.cursor = committed
            return
        later = (other for other in self._numbers() if other > number)
        self.cursor = Place(min(later, default=committed.segment), 0)
        if self.cursor.segment != number + 1:
            self._rows = None  # deleted segments do not count as damaged
        self._mapped = self._view = None

    def _numbers(self) -> Iterator[int]:
        for path in self._directory.glob("*.rows"):
            if path.stem.isdecimal():
                yield int(path.stem)

    def _map(self, number: int) -> memoryview | None:
        """Return the bytes of a segment at its present length, None if it is missing or empty."""
        mapped = self._mapped
        # The server may lengthen a segment, or cut it to its content.
        if mapped and self._number == number and mapped.size() == len(mapped):
            return self._view
        # The old map is unmapped with its last view: it cannot be closed while one is alive.
        self._mapped = self._view = None
        try:
            file = open_file(self._directory / segment_name(number), follow=False)
        except FileNotFoundError:
            return None
        with file:
            if not os.fstat(file.fileno()).st_size:
                return None
            self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._number = number
        self._view = memoryview(self._mapped)
        return self._view


class PolicyFile(NamedTuple):
    """A policy file on disk. `file` is relative to the directory of the run."""

    file: str
    sha256: str
    n_opts: int


class Publisher:
    """Writes policy files into `directory`, numbered in order: the first is 0000000001.onnx."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._number = max(self._numbers(), default=0)
        self._seconds = 0.0
        self._at = float("-inf")

    def is_due(self, now: float) -> bool:
        """
        Return whether the last export is long enough ago. `now` is in seconds of time.monotonic().
        """
        return now - self._at >= max(INTERVAL, self._seconds / _SHARE)

    def write(self, policy: PolicyModel, began: float) -> PolicyFile:
        """
        Write a policy whose export began at `began`, in seconds of time.monotonic().

        The file is complete when its name appears. Raises OSError, and then there is no file.
        """
        self._directory.mkdir(exist_ok=True)
        self._number += 1
        path = self._directory / f"{self._number:010d}.onnx"
        try:
            write_atomic(path, policy.model, durable=False)
        except OSError:
            self._at = time.monotonic()  # a full disk is not tried again in every turn
            raise
        (self._directory / f"{self._number - KEPT:010d}.onnx").unlink(missing_ok=True)
        self._at = time.monotonic()
        self._seconds = self._at - began
        file = f"{self._directory.name}/{path.name}"
        return PolicyFile(file, hashlib.sha256(policy.model).hexdigest(), policy.n_opts)

    def _numbers(self) -> list[int]:
        return [int(p.stem) for p in self._directory.glob("*.onnx") if p.stem.isdecimal()]
