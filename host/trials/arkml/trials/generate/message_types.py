"""Message types of a project: its .proto files, compiled by protoc."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from arkml.base.short_reprs import cut_repr
from arkml.trials.core.error import TrialError
from arkml.trials.generate.spec_file import SpecFile

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

SECONDS = 60.0
"""Seconds that protoc may take."""

GOOGLE = "google/protobuf/"
"""Folder of the .proto files that every protobuf installation has."""


@dataclass(frozen=True, slots=True)
class MessageType:
    """
    A message type of a project.

    Attributes:
        full_name: Name including its package.
        parts: Name within its package: the names of outer messages, then its own.
        proto: Path of its .proto file.

    """

    full_name: str
    parts: tuple[str, ...]
    proto: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """
    Compiled .proto files of a project, including all imports.

    `files` are the descriptors by path, imported files first. `python` are the texts of the
    generated Python modules by path, without Google's.
    """

    files: Mapping[str, FileDescriptorProto]
    python: Mapping[str, str]
    types: Mapping[str, MessageType]

    def named(self, spec: SpecFile) -> dict[str, MessageType]:
        """Return the message types that a spec file names. Raises TrialError for an unknown one."""
        for entry, name in spec.types().items():
            if name not in self.types:
                near = get_close_matches(name, self.types, n=3)
                hint = f"did you mean {' or '.join(near)}" if near else "import its .proto file"
                raise TrialError(
                    f"{spec.path}: {entry} names {cut_repr(name)}, which no .proto file has:"
                    f" {hint}?"
                )
        return {name: self.types[name] for name in spec.types().values()}


def compile_messages(root: Path, protos: Sequence[str]) -> Compiled:
    """
    Compile .proto files, given relative to `root`, with the files that they import.

    Raises TrialError with protoc's message.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        described = folder / "descriptors"
        _protoc(root, ["--include_imports", f"--descriptor_set_out={described}", *protos])
        descriptors = FileDescriptorSet.FromString(described.read_bytes())
        by_path = {file.name: file for file in descriptors.file}
        own = [name for name in by_path if not name.startswith(GOOGLE)]
        output = folder / "python"
        output.mkdir()
        _protoc(root, [f"--python_out={output}", f"--pyi_out={output}", *own])
        texts = {
            path.relative_to(output).as_posix(): path.read_text(encoding="utf-8")
            for path in sorted(output.rglob("*_pb2.py*"))
        }
    types = {found.full_name: found for file in by_path.values() for found in _types(file)}
    return Compiled(by_path, texts, types)


def _protoc(root: Path, arguments: Sequence[str]) -> None:
    include = files("grpc_tools") / "_proto"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}", f"-I{include}", *arguments]
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise TrialError(f"protoc did not end within {SECONDS:g} s") from error
    if run.returncode:
        lines = [line for line in run.stderr.splitlines() if line and ": warning: " not in line]
        raise TrialError(f"protoc refused the .proto files: {'; '.join(lines[:5])}")


def _types(file: FileDescriptorProto) -> Iterator[MessageType]:
    def walk(messages: Sequence[DescriptorProto], above: tuple[str, ...]) -> Iterator[MessageType]:
        for message in messages:
            parts = (*above, message.name)
            full_name = ".".join((file.package, *parts) if file.package else parts)
            yield MessageType(full_name, parts, file.name)
            nested = [kind for kind in message.nested_type if not kind.options.map_entry]
            yield from walk(nested, parts)

    return walk(file.message_type, ())
