"""Files and directories that a user names, mostly for output."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from arkml.base.files import write_atomic
from arkml.errors import UsageError


def path_of(path: str | os.PathLike[str], what: str) -> Path:
    """
    Return a path as a Path. Raises UsageError for a bytes path; `what` names it in the message.
    """
    try:
        return Path(path)
    except TypeError:
        raise UsageError(
            f"{what} is of type {type(path).__name__}, whose path is not text: it takes a str or a"
            " path of one, as os.fsdecode gives it"
        ) from None


def write_file(path: Path, data: bytes) -> None:
    """
    Replace a file at once: the old content stays until the last byte is written.

    A device or a pipe gets the bytes directly, and a symbolic link is preserved. Raises UsageError.
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
    Create a directory and its parents; `name`, such as "--output", is its option in the message.

    Raises UsageError if it cannot be created or written.
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
