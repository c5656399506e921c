"""The directory of a run as its learner sees it: what it was asked for, and where things are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from arkml.errors import HiveError, ProtocolError
from arkml.hive.protocol.documents import parse_object
from arkml.hive.protocol.runs import RunRequest
from arkml.learning.checkpoints import Checkpoint, Checkpoints

_ORIGIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]*)(?:@(\d{1,12}))?")


class NoCheckpoint(HiveError):
    """A run is to start from a checkpoint that is not there."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run on disk. The learner reads `rows` and writes `checkpoints`, `policies`, `events`."""

    directory: Path
    id: str
    request: RunRequest
    names: tuple[str, ...]

    @classmethod
    def open(cls, directory: Path) -> Run:
        """Raises ProtocolError or InvalidSettings for what it cannot read."""
        try:
            values = parse_object((directory / "run.json").read_bytes())
            names = tuple(str(name) for name in values.get("names", ()))
            return cls(directory, str(values["id"]), RunRequest.from_json(values["request"]), names)
        except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise ProtocolError(f"{directory.name} holds no run: {error}") from error

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.directory / "checkpoints")

    def beginning(self) -> Checkpoint | None:
        """
        What to go on from: the run's own newest checkpoint, or the one it was to start from.

        Raises NoCheckpoint or CheckpointDamaged if that one cannot be had.
        """
        own = self.checkpoints.newest()
        if own is not None or not self.request.checkpoint:
            return own
        return self._origin(self.request.checkpoint)

    def _origin(self, name: str) -> Checkpoint:
        match = _ORIGIN.fullmatch(name)
        if match is None:
            raise NoCheckpoint(f"{name!r} names no checkpoint: a run's id, @ and its updates do")
        source = Checkpoints(self.directory.parent / match[1] / "checkpoints")
        found = source.newest() if match[2] is None else None
        if match[2] is not None and int(match[2]) in source.numbers():
            found = source.load(int(match[2]))
        if found is None:
            raise NoCheckpoint(f"there is no checkpoint {name!r}")
        return found
