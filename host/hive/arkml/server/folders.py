"""Open folders of a hive's data, through which nothing outside of them can be read."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO

from arkml.base.files import open_file
from arkml.errors import HiveError

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class Folder:
    """
    A folder that is open, so that no link leads out of it, also none that is made meanwhile.

    A hive makes files and folders only: anything else in their place is refused.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def open(cls, path: Path) -> Folder:
        """Open the folder at a path that a user has given, which may be a link. Raises OSError."""
        return cls(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def names(self) -> list[str]:
        """Return the names of all entries of the folder. Raises OSError."""
        with os.scandir(self._descriptor) as entries:
            return [entry.name for entry in entries]

    def mode(self, name: str) -> int:
        """Return the mode of the entry `name`, 0 if there is none. Raises HiveError for a link."""
        found = self.status(name)
        if found is not None and stat.S_ISLNK(found.st_mode):
            raise self._linked(name)
        return 0 if found is None else found.st_mode

    def status(self, name: str) -> os.stat_result | None:
        """Return the status of the entry `name`, which may be a link; None if there is none."""
        try:
            return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def folder(self, name: str) -> Folder | None:
        """
        Open the folder `name` in this one; return None if there is none.

        Raises HiveError for a link, and OSError.
        """
        if not stat.S_ISDIR(self.mode(name)):
            return None
        try:
            opened = os.open(name, _FLAGS | os.O_DIRECTORY, dir_fd=self._descriptor)
        except (FileNotFoundError, NotADirectoryError):  # replaced in this moment
            return None
        return Folder(self.path / name, opened)

    def file(self, name: str) -> IO[bytes] | None:
        """
        Open the file `name` in this folder; return None if there is none.

        Raises HiveError for a link and for anything else that is not a plain file, and OSError.
        """
        try:
            return open_file(Path(name), follow=False, within=self._descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._linked(name) from None
            if error.errno in (errno.EINVAL, errno.EISDIR):
                raise self._not_plain(name) from None
            raise

    def _linked(self, name: str) -> HiveError:
        return HiveError(f"{self.path / name} is a symbolic link, which a hive does not make")

    def _not_plain(self, name: str) -> HiveError:
        return HiveError(f"{self.path / name} is not a plain file, as those of a hive are")
