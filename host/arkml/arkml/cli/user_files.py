"""Reading of files that a user names, and recognition of their kind by their first bytes."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import assert_never

from arkml.base.files import read_file
from arkml.errors import ModelRejected, ModuleError, ModuleRejected, UsageError
from arkml.limits import Limits

_WASM, _CERVO = b"\0asm", b"CRVO"
_ONNX_VERSION = 0x08  # the tag of `ir_version`, which every exporter writes first
_ONNX_NEXT = frozenset(b"\x12\x1a\x22\x28\x32\x3a\x42\x72")  # tags of what follows it


class FileKind(Enum):
    """The kind of a file, by its first bytes; the value names it in a sentence."""

    EMPTY = "empty"
    MODULE = "a WebAssembly module"
    CERVO = "a Cervo container"
    ONNX = "an ONNX model"
    OTHER = "something else"


def kind_of(data: bytes) -> FileKind:
    """Return the kind of a file by its first bytes, such as `00 61 73 6d` of wasm."""
    if not data:
        return FileKind.EMPTY
    if data[:4] == _WASM or data.lstrip()[:1] == b"(":  # wasm text is a module too
        return FileKind.MODULE
    if data[:4] == _CERVO:
        return FileKind.CERVO
    if data[0] == _ONNX_VERSION and data[1:2] < b"\x20" and data[2:3] and data[2] in _ONNX_NEXT:
        return FileKind.ONNX
    return FileKind.OTHER


def read_module(path: Path) -> bytes:
    """
    Return the bytes of a module. Raises ModuleError if the file is unreadable or another kind.
    """
    try:
        data = read_file(path)
    except OSError as error:
        raise ModuleError(_unreadable(path, error)) from None
    match kind_of(data):
        case FileKind.EMPTY:
            raise ModuleRejected(f"{path} is empty: a WebAssembly module is expected")
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
    Return the bytes of a model, including weights in files beside it.

    Raises UsageError if the file cannot be read, ModelRejected if it is clearly something else.
    """
    from arkml.policies.policy_files import read_policy_file

    data = read_policy_file(path, limits)
    match kind_of(data):
        case FileKind.EMPTY:
            raise ModelRejected(f"{path} is empty: an ONNX or Cervo file is expected")
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
