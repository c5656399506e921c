"""Files and directories that a user names, and those of output above all."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from arkml.base.files import write_atomic
from arkml.errors import UsageError


def path_of(path: str | os.PathLike[str], what: str) -> Path:
    """Return a path; `what` names it in the message. Raises UsageError for one of bytes."""
    try:
        return Path(path)
    except TypeError:
        raise UsageError(
            f"{what} is of type {type(path).__name__}, whose path is not text: it takes a str or a"
            " path of one, as os.fsdecode gives it"
        ) from None


def write_file(path: Path, data: bytes) -> None:
    """
    Replace a file in one step: until the last byte is written, the old content stays.

    A device or a pipe takes the bytes as they come, a symbolic link stays one. Raises UsageError.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            _replace(path.resolve(), data)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def make_directory(name: str, path: Path) -> None:
    """
    Make a directory and its parents; `name` is the option that gave it, for the message.

    Raises UsageError if it cannot be made or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{name} {path} cannot be made: {error.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"{name} {path} cannot be written: choose another directory")


def _replace(target: Path, data: bytes) -> None:
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    # Other threads and processes may write it too.
    part = target.with_name(f".arkml-{os.getpid()}-{threading.get_ident()}.part")
    write_atomic(target, data, durable=False, temporary=part)
