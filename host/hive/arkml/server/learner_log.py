"""Log lines of learners and workers, written to the hive's log and to a file of their run."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from pathlib import Path

from arkml.base.files import open_file
from arkml.base.loggers import SafeLogger
from arkml.base.terminal import harmless

_log = SafeLogger(__name__)

_LEVELS = {
    name: getattr(logging, name) for name in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
}
_LEVELED = re.compile(rf"(?:\w+: )?({'|'.join(_LEVELS)})\s*:? (.*)")
"""A line that begins with its level, after the word `learner:` or nothing."""

_LONGEST = 4_096
"""Letters of a line that are relayed."""

LOG_NAME, FORMER_NAME = "learner.log", "learner.log.1"
_MOST_BYTES = 1 << 20
"""Bytes of the file, after which it takes the place of the former one."""


def relay_line(line: str, *, run: str, worker: str = "") -> None:
    """
    Log a line of a process as a line of its run. Any thread may call this.

    Args:
        line: The line, which may begin with a level. Without one, for example in a traceback, it is
            logged at INFO.
        run: The id of the run, empty if it is not known.
        worker: The name of a rollout worker, empty for a learner.

    """
    text = line[:_LONGEST]
    if not text:
        return
    level, process = logging.INFO, worker or "learner"
    if match := _LEVELED.fullmatch(text):
        level, text = _LEVELS[match[1]], match[2]
    about = {name: value for name, value in (("run", run), ("worker", worker)) if value}
    _log.log(level, "%s: %s", process, text, extra=about)


def append_line(run: Path, line: bytes) -> None:
    """Append a line to the log file of the run in a directory; ignore an error of the file."""
    path = run / LOG_NAME
    with contextlib.suppress(OSError):
        with open_file(path, follow=False, mode="ab") as file:
            file.write(line)
            size = file.tell()
        if size > _MOST_BYTES:
            path.replace(run / FORMER_NAME)


def last_lines(run: Path, most: int) -> tuple[list[str], bool]:
    """
    Return at most `most` last lines of a run's learner log, and whether they are the whole log.

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
