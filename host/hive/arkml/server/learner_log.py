"""The log of one run's learners: their output, in a file of the run that stays small."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from arkml.base.files import open_file
from arkml.base.terminal import harmless

LOG_NAME, FORMER_NAME = "learner.log", "learner.log.1"
_MOST_BYTES = 1 << 20
"""Bytes of the file, after which it takes the place of the former one."""


def append_line(run: Path, line: bytes) -> None:
    """Append a line to the log of the run in a directory; does nothing if it cannot be written."""
    path = run / LOG_NAME
    with contextlib.suppress(OSError):
        with open_file(path, follow=False, mode="ab") as file:
            file.write(line)
            size = file.tell()
        if size > _MOST_BYTES:
            path.replace(run / FORMER_NAME)


def last_lines(run: Path, most: int) -> tuple[list[str], bool]:
    """
    Return the last lines of a run's learner log, and whether they are the whole log.

    Control characters and marks that reorder text are made visible. Raises OSError.
    """
    data, is_whole = b"", True
    for name in (LOG_NAME, FORMER_NAME):
        if data.count(b"\n") > most:
            is_whole = False
            break
        with (
            contextlib.suppress(FileNotFoundError),
            open_file(run / name, follow=False) as file,
        ):
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 2 * _MOST_BYTES))
            data = file.read() + data
    lines = harmless(data.decode(errors="replace")).splitlines()
    return lines[-most:], is_whole and len(lines) <= most
