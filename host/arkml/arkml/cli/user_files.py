"""Reading of files that a user names."""

from __future__ import annotations

from pathlib import Path

from arkml.base.file_kinds import CERVO, MODULE, ONNX, kind_of
from arkml.base.files import read_file
from arkml.errors import ModuleError, ModuleRejected, UsageError


def read_module(path: Path) -> bytes:
    """
    Return the bytes of a module. Raises ModuleError if the file is unreadable or another kind.
    """
    try:
        data = read_file(path)
    except OSError as error:
        raise ModuleError(_unreadable(path, error)) from None
    if not data:
        raise ModuleRejected(f"{path} is empty: {MODULE} is expected")
    if (kind := kind_of(data)) in (CERVO, ONNX):
        raise ModuleRejected(
            f"{path} is {kind}, not {MODULE}: `arkml describe` shows it,"
            " `arkml run GUEST --policy` acts with it"
        )
    return data


def read_input(path: Path) -> bytes:
    """Return the bytes of any file. Raises UsageError."""
    try:
        return read_file(path)
    except OSError as error:
        raise UsageError(_unreadable(path, error)) from None


def keep_apart(target: Path | None, *sources: Path | None) -> None:
    """Raise UsageError if the output file `target` is one of the `sources`, or a link to one."""
    for source in sources:
        if target is None or source is None or not _is_same(target, source):
            continue
        what = "the file" if target == source else f"{source}, a file"
        raise UsageError(f"{target} is {what} that is read: name another one to write")


def _is_same(target: Path, source: Path) -> bool:
    try:
        return target.samefile(source)
    except OSError:  # one of them does not exist, so they differ
        return False


def _unreadable(path: Path, error: OSError) -> str:
    return f"{path} cannot be read: {error.strerror}"
