"""Owners of files that root makes in a data directory whose service runs as another user."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path


def owner_to_be(directory: Path) -> tuple[int, int] | None:
    """
    Return the user and group ids of a directory's owner, to whom root gives files in it.

    Returns None for a process that does not run as root: its files belong to its own user.
    """
    if os.geteuid() != 0:
        return None
    found = directory.stat()
    return found.st_uid, found.st_gid


def make_private(directory: Path) -> None:
    """
    Make a directory that only its user can read, and its parents, unless they exist.

    If root makes a directory, it belongs to the owner of its parent. Raises OSError.
    """
    make_parents(directory)
    _make(directory, 0o700)


def make_parents(path: Path) -> None:
    """
    Make the missing parents of a path; if root does, each belongs to the owner of its parent.

    Raises OSError.
    """
    for one in reversed(path.absolute().parents):
        _make(one, 0o777)


def _make(directory: Path, mode: int) -> None:
    if directory.is_dir():
        return
    directory.mkdir(mode, exist_ok=True)
    if (owner := owner_to_be(directory.parent)) is not None:
        os.chown(directory, *owner, follow_symlinks=False)


def give(directory: int, owner: tuple[int, int]) -> None:
    """
    Give an open directory with all its contents to a user and group.

    Links themselves change their owner, but not their targets.
    """
    for _, folders, files, descriptor in os.fwalk(".", topdown=False, dir_fd=directory):
        for name in (*folders, *files):
            os.chown(name, *owner, dir_fd=descriptor, follow_symlinks=False)
    os.fchown(directory, *owner)


def give_open(descriptor: int, owner: tuple[int, int]) -> None:
    """
    Give a file that root has just opened for writing to a user and group.

    Does nothing unless root owns the file, it is a plain file, and it has no other name.
    """
    found = os.fstat(descriptor)
    if found.st_uid == 0 and found.st_nlink == 1 and stat.S_ISREG(found.st_mode):
        os.fchown(descriptor, *owner)


def refusal(data: Path, error: PermissionError) -> str:
    """Return the sentence for a user whose process may not use a data directory."""
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
