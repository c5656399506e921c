"""Temporary directories of embedded hives, and the removal of the directories of killed hosts."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

_PREFIX = "arkml-hive-"
_HOST_LOCK, _HIVE_LOCK = "host.lock", "lock"
_UNLOCKED_FOR = 3_600.0
"""Seconds after which a directory that its host has never locked counts as abandoned."""


class TemporaryData:
    """
    A temporary directory, locked as long as this process or a fork of it runs.

    Making one also removes the directories that killed hosts have left behind.
    """

    def __init__(self) -> None:
        """Make and lock a directory. Raises OSError."""
        _remove_abandoned(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = os.open(self.path / _HOST_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        """Remove the directory; what cannot be removed is left."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _remove_abandoned(parent: Path) -> None:
    for path in parent.glob(f"{_PREFIX}*"):
        try:
            if _is_abandoned(path):
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            continue  # removed meanwhile, or not to be read


def _is_abandoned(path: Path) -> bool:
    """Return whether no host and no hive uses a directory of this user. Raises OSError."""
    state = path.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid():
        return False
    if not (path / _HOST_LOCK).exists() and time.time() - state.st_mtime < _UNLOCKED_FOR:
        return False  # a host is about to lock it
    return not any(_is_locked(path / name) for name in (_HOST_LOCK, _HIVE_LOCK))


def _is_locked(path: Path) -> bool:
    """Return whether another process holds the lock of a file. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
