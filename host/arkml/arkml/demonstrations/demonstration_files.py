"""Reading and writing of demonstration files, whose names tell their format."""

from __future__ import annotations

import re
from pathlib import Path

from arkml.demonstrations.dataset import DemonstrationSet
from arkml.demonstrations.minari import is_dataset, read_minari, require_h5py, write_minari
from arkml.demonstrations.npz import read_npz, write_npz
from arkml.errors import UsageError

_DATASET = re.compile(r".+-v\d+")


def read_demonstrations(path: Path) -> DemonstrationSet:
    """Return the demonstrations in an .npz file or a Minari dataset. Raises UsageError."""
    if path.is_dir():
        if not is_dataset(path):
            raise UsageError(f"{path} is a directory, and not a dataset of Minari")
        return read_minari(path)
    return read_npz(path)


def require_writable(path: Path) -> None:
    """
    Raise UsageError if a name has an unknown format, such as `play.csv`, or the dataset exists.
    """
    if path.suffix == ".npz":
        return
    if not _DATASET.fullmatch(path.name):
        raise UsageError(
            f"{path}: demonstrations are written to FILE.npz, or to NAME-v0, a directory with a"
            " dataset of Minari"
        )
    require_h5py()
    if path.exists():
        raise UsageError(f"{path} is there already: name another dataset to write")


def write_demonstrations(path: Path, demonstrations: DemonstrationSet) -> None:
    """Write demonstrations to an .npz file or a Minari dataset. Raises UsageError."""
    require_writable(path)
    if path.suffix == ".npz":
        write_npz(path, demonstrations)
    else:
        write_minari(path, demonstrations)
