"""Traces (recordings) of evaluations, which a training keeps in its directory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from arkml.base.output_files import make_directory
from arkml.limits import MIB

FOLDER = "traces"
"""The folder of the traces in the directory of a training."""

MOST_BYTES = 64 * MIB
"""Bytes of all traces, above which the oldest go."""

TRACE_BYTES = 8 * MIB
"""Bytes of one trace, above which its oldest part goes."""

MOST_FILES = 20
_PLAYING = "playing.trace"
_NAME = re.compile(r"version-(\d{1,18})_return(-?\d{1,300}(?:\.\d{1,9})?)\.trace")


class KeptTrace(NamedTuple):
    """The trace of an evaluated policy version, as given by its file name."""

    version: int
    mean_return: float
    path: Path


class EvaluationTraces:
    """
    Keeps the trace of one in `every` evaluations, named by its policy version and mean return.

    At most `MOST_FILES` files with `MOST_BYTES` are kept: the oldest are deleted, except the best,
    the worst and the latest. Files of an earlier training in the directory count, too.
    """

    def __init__(self, directory: Path, every: int) -> None:
        self.folder: Path = directory / FOLDER
        """The folder of the files."""
        self._every = every
        self._count = 0

    def make_folder(self) -> None:
        """Make the folder of the traces. Raises UsageError."""
        make_directory("directory", self.folder)

    def begin(self) -> Path | None:
        """Return the file for the next evaluation's trace, None if it is not recorded."""
        self._count += 1
        return None if (self._count - 1) % self._every else self.folder / _PLAYING

    def keep(self, playing: Path, version: int, returns: Sequence[float]) -> None:
        """
        Rename the file of an evaluation that has ended, and delete surplus files.

        Without returns, for example after the guest failed, the name has the version alone. Raises
        OSError.
        """
        rated = f"_return{sum(returns) / len(returns):.4f}" if returns else "_unrated"
        playing.replace(self.folder / f"version-{version}{rated}.trace")
        self._drop_oldest()

    def kept(self) -> list[KeptTrace]:
        """Return the traces of evaluated versions, the oldest first."""
        found = [(_NAME.fullmatch(path.name), path) for path in self._files()]
        return [KeptTrace(int(name[1]), float(name[2]), path) for name, path in found if name]

    def _files(self) -> list[Path]:
        """Return all files, the oldest first."""
        files = [path for path in self.folder.glob("version-*.trace") if path.is_file()]
        return sorted(files, key=lambda path: (path.stat().st_mtime_ns, path.name))

    def _drop_oldest(self) -> None:
        files, rated = self._files(), self.kept()
        stay = {files[-1]}
        for choose in (min, max):
            if rated:
                stay.add(choose(rated, key=lambda one: one.mean_return).path)
        sizes = {path: path.stat().st_size for path in files}
        for path in files:
            if len(sizes) <= MOST_FILES and sum(sizes.values()) <= MOST_BYTES:
                return
            if path not in stay:
                with suppress(FileNotFoundError):
                    path.unlink()
                del sizes[path]
