"""The files beside a database of SQLite, which may come from a stranger."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

JOURNAL: Final = "-journal"
"""The end of the name of a rollback journal."""

SIDE_FILES: Final = ("-wal", "-shm", JOURNAL)
"""The ends of the names of all files that SQLite opens beside a database."""


def is_plain(path: Path) -> bool:
    """Return whether a file is a plain one, not a link, pipe, device or folder. Raises OSError."""
    return stat.S_ISREG(path.lstat().st_mode)


def foreign_beside(path: Path) -> list[Path]:
    """
    Return the files that must not lie beside a database that is always in WAL mode.

    These are a rollback journal, since SQLite deletes the file that a journal names as its
    super-journal, and a link, a pipe or a device in the place of any file of SQLite. Raises
    OSError.
    """
    found = []
    for end in SIDE_FILES:
        beside = path.with_name(path.name + end)
        try:
            is_ours = is_plain(beside) and end != JOURNAL
        except FileNotFoundError:
            continue
        if not is_ours:
            found.append(beside)
    return found
