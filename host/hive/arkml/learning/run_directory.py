"""The directory of a run as its learner reads it: the request, and where files lie."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from arkml.base.files import read_plain
from arkml.errors import HiveError, ProtocolError
from arkml.hive.protocol.documents import parse_object
from arkml.hive.protocol.runs import ORIGIN_FILE, RunRequest
from arkml.learning.checkpoints import Checkpoint, Checkpoints, read_checkpoint

_ORIGIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]*)(?:@(\d{1,12}))?")


class NoCheckpoint(HiveError):
    """The checkpoint that a run is to start from does not exist."""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """
    A run on disk. The learner reads `rows` and writes `checkpoints`, `policies`, `events`.

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
            values = parse_object(read_plain(directory / "run.json"))
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

        It is the run's own newest one, or else the one that the request names.

        Raises:
            NoCheckpoint: The named checkpoint does not exist.
            CheckpointDamaged: The named checkpoint cannot be loaded.
            CheckpointOutdated: All checkpoints were written by an earlier version of arkml.
            InvalidSettings: The named checkpoint has other shapes.

        """
        own = self.checkpoints.newest()
        if own is not None or not self.request.checkpoint:
            return own
        origin = self._origin(self.request.checkpoint)
        origin.check_fits(self.request.settings)
        return origin

    def _origin(self, name: str) -> Checkpoint:
        runs = self.directory.parent
        if name == ORIGIN_FILE:
            return read_checkpoint(runs.parent / ORIGIN_FILE)
        match = _ORIGIN.fullmatch(name)
        if match is None:
            raise NoCheckpoint(f"checkpoint {name!r} is not of the form RUN or RUN@UPDATES")
        source = Checkpoints(runs / match[1] / "checkpoints")
        checkpoint = source.newest() if match[2] is None else source.find(int(match[2]))
        if checkpoint is None:
            raise NoCheckpoint(f"there is no checkpoint {name!r}")
        return checkpoint
