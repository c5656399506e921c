"""The checkpoint that a training starts from: one of a run at its hive, or a file."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from arkml.base.files import read_plain
from arkml.base.output_files import make_directory, path_of, write_file
from arkml.errors import HiveError, UsageError
from arkml.hive.protocol.runs import ORIGIN_FILE

CHECKPOINTS = "arkml.checkpoints"
"""The group of entry points with the function that reads a learner's checkpoint."""

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(?:@[0-9]{1,12})?")
"""Text that names a run of a hive, or its checkpoint; the path of a file has a dot or a slash."""


@dataclass(frozen=True, slots=True)
class TrainingOrigin:
    """
    A checkpoint as a user names it: "RUN", "RUN@UPDATES" or a path such as `2000.safetensors`.
    """

    checkpoint: str | os.PathLike[str]

    @property
    def file(self) -> Path | None:
        """The path of the checkpoint, None if it is a checkpoint of a run at the hive."""
        text = self.checkpoint
        return (
            None if isinstance(text, str) and _RUN.fullmatch(text) else path_of(text, "checkpoint")
        )

    @property
    def name(self) -> str:
        """The name by which the hive knows the checkpoint, such as "RUN@2000"."""
        return str(self.checkpoint) if self.file is None else ORIGIN_FILE

    def check(self, *, hive: str, is_embedded: bool, resume: bool) -> None:
        """Raise UsageError if a training on that hive cannot start from the checkpoint."""
        if resume:
            raise UsageError(
                f"checkpoint is {self.checkpoint} and resume is set: a training either starts from"
                " a checkpoint or continues the one in its directory"
            )
        if self.file is not None and not is_embedded:
            raise UsageError(
                f"checkpoint is the file {self.file}, and the hive is {hive}: name a run of that"
                " hive, RUN or RUN@UPDATES; only an embedded hive reads a file"
            )
        if self.file is None and is_embedded:
            raise UsageError(
                f"checkpoint is the run {self.checkpoint}: the hive of a new training has no runs;"
                " name a file, or a hive (--hive HOST:PORT, hive=)"
            )

    def place(self, data: Path) -> None:
        """
        Copy the checkpoint, if it is a file, into the directory of an embedded hive.

        The learner's own reader checks the file first, so that a damaged file is refused before
        anything starts. The hive gets a copy, because a learner that restarts before its own first
        checkpoint needs the file once more. Raises UsageError, and CheckpointDamaged.
        """
        if self.file is None:
            return
        if not self.file.is_file():
            raise UsageError(f"the checkpoint {self.file} is not a file")
        content = _checked(self.file)
        make_directory("directory", data)
        write_file(data / ORIGIN_FILE, content)


def _checked(source: Path) -> bytes:
    """
    Return a checkpoint, checked.

    Raises CheckpointDamaged, UsageError, and HiveError without arkml[hive].
    """
    # By its entry point: the learner's package lies above this one, and may not be installed.
    for reader in entry_points(group=CHECKPOINTS):
        try:
            size = source.stat().st_size
            reader.load()(source)
            return read_plain(source, most=size)  # by now it may be another file, or a pipe
        except ImportError as error:
            raise HiveError(f"a checkpoint needs the extra 'hive': {error}") from error
        except OSError as error:
            raise UsageError(f"{source} cannot be read: {error.strerror}") from error
    raise HiveError("a checkpoint needs the extra 'hive': pip install 'arkml[hive]'")
