"""The checkpoint file that a training starts from, placed where the learner of its hive reads it."""

from __future__ import annotations

from pathlib import Path

from arkml.errors import HiveError, UsageError
from arkml.hive.protocol.runs import ORIGIN_FILE
from arkml.output_files import make_directory, write_file
from arkml.training.options import TrainingOptions


def place_origin(options: TrainingOptions) -> None:
    """
    Copy the file of `options.checkpoint` into the directory of the embedded hive, if it is one.

    It is read as the learner reads it first, so that a damaged file is refused before anything
    starts. A copy, because the learner reads it again if it is restarted before its first
    checkpoint. Raises UsageError, and CheckpointDamaged.
    """
    source = options.origin_file
    if source is None:
        return
    if not source.is_file():
        raise UsageError(f"the checkpoint {source} is not a file")
    data = _checked(source)
    hive = options.directory / "hive"
    make_directory("directory", hive)
    write_file(hive / ORIGIN_FILE, data)


def _checked(source: Path) -> bytes:
    """Return the content of a checkpoint. Raises CheckpointDamaged, and HiveError without hive."""
    try:
        from arkml.learning.checkpoints import read_checkpoint
    except ImportError as error:
        raise HiveError(f"a checkpoint needs the extra 'hive': {error}") from error
    read_checkpoint(source)
    return source.read_bytes()
