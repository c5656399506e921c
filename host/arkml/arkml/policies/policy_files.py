"""Policy files that a user names, including weights in other files beside them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from arkml.base.file_kinds import CERVO, MODULE, ONNX, kind_of
from arkml.base.files import open_file
from arkml.base.native_imports import import_onnx
from arkml.base.output_files import path_of
from arkml.base.short_reprs import cut_repr
from arkml.errors import ModelRejected, SnapshotTooLarge, UsageError
from arkml.limits import Limits
from arkml.policies.onnx_wire import walk
from arkml.policies.operators.call import checked_type

_EXTERNAL = 1


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """
    A policy file of the embedder, ONNX or Cervo.

    outputs: the names of the outputs that hold the actions, whose columns are joined in this order;
    empty to find them by their names and shapes. `path` is where the file was read, for messages.
    """

    data: bytes
    outputs: tuple[str, ...] = ()
    path: Path | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of a file that holds a weight; the rest of the file is not read."""

    title: str
    name: str
    offset: int
    length: int

    def read(self, folder: Path) -> bytes:
        """Return the bytes of the weight. Raises ModelRejected."""
        try:
            with open_file(folder / self.name, follow=False) as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(min(self.offset, size))
                data = file.read(min(self.length, size))
        except OSError as error:
            text = f"{self.title}: the file cannot be read: {error.strerror}"
            raise ModelRejected(text) from error
        if len(data) < self.length or self.offset > size:
            raise ModelRejected(
                f"{self.title}: the file ends before byte {self.offset + self.length}"
            )
        return data


def output_names(outputs: str | Sequence[str]) -> tuple[str, ...]:
    """Return names of outputs that hold actions as a tuple. Raises UsageError for other values."""
    names = (outputs,) if isinstance(outputs, str) else outputs
    if not isinstance(names, Sequence) or not all(isinstance(n, str) and n for n in names):
        raise UsageError(
            f"outputs is {cut_repr(outputs)}: it takes the name of an output, or several"
        )
    return tuple(names)


def read_policy_file(path: str | os.PathLike[str], limits: Limits) -> bytes:
    """
    Return the bytes of a policy file.

    Weights that an ONNX model keeps in another file of its folder are moved into the model. Only
    use it for files that the user names: bytes from a guest or the network must not make this
    process open files. Raises UsageError if the file cannot be read, SnapshotTooLarge, and
    ModelRejected if it is clearly of another kind, or the other file does not match the model.
    """
    path = path_of(path, "policy")
    try:
        data = _read(path, limits.snapshot_bytes)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # of a path that cannot be one
        raise UsageError(f"{str(path)!r} cannot be read: {error}") from error
    if not data:
        raise ModelRejected(f"{path} is empty: an ONNX or Cervo file is expected")
    if (kind := kind_of(data)) not in ("", ONNX, CERVO):
        hint = ": `arkml inspect` shows it, `arkml run` runs it" if kind == MODULE else ""
        raise ModelRejected(f"{path} is {kind}, not an ONNX or Cervo file{hint}")
    # Every weight in another file has the key `location`.
    return _with_weights(data, path.parent, limits) if b"location" in data else data


def _with_weights(data: bytes, folder: Path, limits: Limits) -> bytes:
    onnx = import_onnx()
    from google.protobuf.message import DecodeError

    try:
        walk(data, allow_external=True)
        model = onnx.ModelProto.FromString(data)
    except (ModelRejected, DecodeError):
        return data  # not an ONNX model, or one that vetting refuses with a reason
    external = [each for each in _tensors(model) if each.data_location == _EXTERNAL]
    total = len(data)
    for tensor in external:
        part = _part(tensor)
        total += part.length
        if total > limits.snapshot_bytes:
            raise SnapshotTooLarge(
                f"the model and its weights are larger than {limits.snapshot_bytes} bytes"
            )
        tensor.raw_data = part.read(folder)
        del tensor.external_data[:]
        tensor.ClearField("data_location")
    return model.SerializeToString() if external else data


def _tensors(model: Any) -> Iterator[Any]:
    yield from model.graph.initializer
    for node in model.graph.node:
        for attribute in node.attribute:
            yield attribute.t
            yield from attribute.tensors


def _part(tensor: Any) -> _Part:
    """Return where a weight lies. Raises ModelRejected."""
    claims = {entry.key: entry.value for entry in tensor.external_data}
    name = claims.get("location", "")
    title = f"weight {tensor.name[:80]!r} in {name[:80]!r}"
    if not name or name in (".", "..") or set(name) & {"/", "\\", "\0"}:
        raise ModelRejected(f"{title}: weights must lie in a file of the model's own folder")
    size = prod(tensor.dims) * checked_type(tensor.data_type).size
    offset = _number(claims.get("offset", "0"), title)
    length = _number(claims.get("length", str(size)), title)
    if min(tensor.dims, default=0) < 0 or length != size:
        raise ModelRejected(f"{title}: {length} bytes for a shape {cut_repr(list(tensor.dims))}")
    return _Part(title, name, offset, length)


def _number(text: str, title: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ModelRejected(f"{title}: expected a number of bytes, got {text[:40]!r}")
    return int(text)


def _read(path: Path, most: int) -> bytes:
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise SnapshotTooLarge(f"{str(path)!r} has {size} bytes, more than {most}")
        return file.read(most)
