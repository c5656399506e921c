"""Checks of the files beside an SQLite database, which may come from a stranger."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from arkml.base.files import open_file

JOURNAL: Final = "-journal"
"""The end of the name of a rollback journal."""

SIDE_FILES: Final = ("-wal", "-shm", JOURNAL)
"""The ends of the names of all files that SQLite opens beside a database."""


_NAMED = bytes.fromhex("d9d505f920a163d7")
"""The last bytes of a rollback journal that names a super-journal."""


def is_plain(path: Path) -> bool:
    """
    Return whether a path is a regular file, not a link, pipe, device or folder. Raises OSError.
    """
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


def names_another_file(database: Path) -> bool:
    """
    Return whether the rollback journal beside a database names a super-journal.

    SQLite would delete the named file; journals of transactions in a single database name none.
    Raises OSError for a journal that is not a regular file.
    """
    path = database.resolve()
    try:
        with open_file(path.with_name(path.name + JOURNAL), follow=False) as journal:
            size = os.fstat(journal.fileno()).st_size
            journal.seek(max(0, size - len(_NAMED)))
            return journal.read() == _NAMED
    except FileNotFoundError:
        return False
