"""The files that a user names: read, told apart by how they begin, written whole or not at all."""

from __future__ import annotations

import errno
import os
from enum import Enum
from pathlib import Path
from typing import assert_never

from arkml.errors import ModelRejected, ModuleError, ModuleRejected, UsageError
from arkml.files import write_atomic
from arkml.limits import Limits

_WASM, _CERVO = b"\0asm", b"CRVO"
_ONNX_VERSION = 0x08  # the tag of `ir_version`, which every exporter writes first
_ONNX_NEXT = frozenset(b"\x12\x1a\x22\x28\x32\x3a\x42\x72")  # tags of what follows it


class FileKind(Enum):
    """What a file is by its first bytes, and what to call that in a sentence."""

    EMPTY = "empty"
    MODULE = "a WebAssembly module"
    CERVO = "a Cervo container"
    ONNX = "an ONNX model"
    OTHER = "something else"


def kind_of(data: bytes) -> FileKind:
    """What the bytes of a file look like."""
    if not data:
        return FileKind.EMPTY
    if data[:4] == _WASM or data.lstrip()[:1] == b"(":  # text of a module counts as one
        return FileKind.MODULE
    if data[:4] == _CERVO:
        return FileKind.CERVO
    if data[0] == _ONNX_VERSION and data[1:2] < b"\x20" and data[2:3] and data[2] in _ONNX_NEXT:
        return FileKind.ONNX
    return FileKind.OTHER


def read_module(path: Path) -> bytes:
    """The bytes of a module. Raises ModuleError if they cannot be read or are clearly no module."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModuleError(_unreadable(path, error)) from None
    match kind_of(data):
        case FileKind.EMPTY:
            raise ModuleRejected(f"{path} is empty: a WebAssembly module is wanted")
        case FileKind.CERVO | FileKind.ONNX as kind:
            raise ModuleRejected(
                f"{path} is {kind.value}, not a WebAssembly module: `arkml describe` shows it,"
                " `arkml run GUEST --policy` acts with it"
            )
        case FileKind.MODULE | FileKind.OTHER:
            return data
        case other:
            assert_never(other)


def read_model(path: Path, limits: Limits) -> bytes:
    """
    The bytes of a model, with the weights that lie beside it.

    Raises UsageError if they cannot be read, ModelRejected if they are clearly no model.
    """
    from arkml.policies.files import read_policy_file

    data = read_policy_file(path, limits)
    match kind_of(data):
        case FileKind.EMPTY:
            raise ModelRejected(f"{path} is empty: an ONNX or Cervo file is wanted")
        case FileKind.MODULE:
            raise ModelRejected(
                f"{path} is a WebAssembly module, not an ONNX or Cervo file: `arkml inspect` shows"
                " it, `arkml run` runs it"
            )
        case FileKind.CERVO | FileKind.ONNX | FileKind.OTHER:
            return data
        case other:
            assert_never(other)


def read_input(path: Path) -> bytes:
    """The bytes of any file. Raises UsageError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(_unreadable(path, error)) from None


def keep_apart(target: Path | None, *sources: Path | None) -> None:
    """Refuse to write over what is read, through links too. Raises UsageError."""
    for source in sources:
        if target is None or source is None or not _is_same(target, source):
            continue
        what = "the file" if target == source else f"{source}, a file"
        raise UsageError(f"{target} is {what} that is read: name another one to write")


def make_directory(option: str, path: Path) -> None:
    """Make a directory that an option names. Raises UsageError if nothing can be written there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be made: {error.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"{option} {path} cannot be written: choose another directory")


def write_file(path: Path, data: bytes) -> None:
    """
    Write a file as a whole: until the last byte lies there, whatever was there before stays.

    Raises UsageError.
    """
    try:
        if path.exists() and not path.is_file():  # a device or a pipe takes bytes as they come
            path.write_bytes(data)
        else:
            _replace(path.resolve(), data)  # a link stays one
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def named(name: str | Path, text: str) -> str:
    """`text`, which names the file it is about, or is made to."""
    return text if Path(name).name in text else f"{name}: {text}"


def _replace(target: Path, data: bytes) -> None:
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    part = target.with_name(f".arkml-{os.getpid()}.part")  # other commands may write it too
    write_atomic(target, data, durable=False, temporary=part)


def _is_same(target: Path, source: Path) -> bool:
    try:
        return target.samefile(source)
    except OSError:  # one of them is not there, so it is not the other
        return False


def _unreadable(path: Path, error: OSError) -> str:
    return f"{path} cannot be read: {error.strerror}"
