"""Files that root makes in the directory of a service, which runs as another user."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path


def owner_to_be(directory: Path) -> tuple[int, int] | None:
    """Return user and group that root gives its files in a directory, None for other users."""
    if os.geteuid() != 0:
        return None
    found = directory.stat()
    return found.st_uid, found.st_gid


def make_private(directory: Path) -> None:
    """
    Make a directory that only its user can read, with its parents, unless it exists.

    Root makes each directory for the owner of its parent. Raises OSError.
    """
    make_parents(directory)
    _make(directory, 0o700)


def make_parents(path: Path) -> None:
    """Make the directories above a path, each for the owner of its parent. Raises OSError."""
    for one in reversed(path.absolute().parents):
        _make(one, 0o777)


def _make(directory: Path, mode: int) -> None:
    if directory.is_dir():
        return
    directory.mkdir(mode, exist_ok=True)
    if (owner := owner_to_be(directory.parent)) is not None:
        os.chown(directory, *owner, follow_symlinks=False)


def give(directory: int, owner: tuple[int, int]) -> None:
    """Give a directory that is open, and all that is in it, to a user; not what links lead to."""
    for _, folders, files, descriptor in os.fwalk(".", topdown=False, dir_fd=directory):
        for name in (*folders, *files):
            os.chown(name, *owner, dir_fd=descriptor, follow_symlinks=False)
    os.fchown(directory, *owner)


def give_open(descriptor: int, owner: tuple[int, int]) -> None:
    """Give a file to a user, if root has just opened it for writing, owns it, and it is plain."""
    found = os.fstat(descriptor)
    if found.st_uid == 0 and found.st_nlink == 1 and stat.S_ISREG(found.st_mode):
        os.fchown(descriptor, *owner)


def refusal(data: Path, error: PermissionError) -> str:
    """Return the sentence for a data directory that this process may not use."""
    user, path = _name(os.geteuid()), Path(error.filename or data)
    for one in (data, path):
        if (owner := _owner(one)) not in ("", user) and one.is_relative_to(data):
            return (
                f"{one} belongs to {owner}, and this process runs as {user}: chown -R {user}"
                f" {data}, or name another --data"
            )
    return f"{user} may not use {path} ({error.strerror}): name another --data"


def _owner(path: Path) -> str:
    """Return the name of a file's owner, "" if that is not known."""
    try:
        return _name(path.stat().st_uid)
    except OSError:
        return ""


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
