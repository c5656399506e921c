"""JavaScript modules of message types, written from their descriptors, over `protobuf.js`."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from arkml.trials.core.error import TrialError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
    )

_SCALARS: Final = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32",
    8: "bool", 9: "string", 12: "bytes", 13: "uint32", 14: "enum", 15: "sfixed32", 16: "sfixed64",
    17: "sint32", 18: "sint64",
}  # fmt: skip
_MESSAGE: Final = 11
_REPEATED: Final = 3
_TAKEN: Final = {"constructor", "create", "decode", "encode", "getTypeUrl", "prototype"}
_HUMP = re.compile(r"_([a-z])(?=[a-z]|$)")


def module_path(proto: str) -> str:
    """Return the path of the module of a .proto file, in the folder of all modules."""
    return proto.removesuffix(".proto") + "_pb.js"


def import_path(importer: str, imported: str) -> str:
    """Return the path by which one module imports another one of the folder."""
    path = posixpath.relpath(imported, posixpath.dirname(importer) or ".")
    return path if path.startswith("../") else f"./{path}"


def exported(package: str, parts: Sequence[str]) -> str:
    """Return the expression of a type among the exports of its module."""
    return ".".join((*filter(None, package.split(".")), *map(_safe, parts)))


def module_text(
    proto: str, files: Mapping[str, FileDescriptorProto], notice: str, runtime: str
) -> str:
    """
    Return the module of one .proto file of `files`, whose first line is the notice.

    `runtime` is the path of `protobuf.js`, in the folder of all modules.

    Raises TrialError for a file that is not proto3.
    """
    file = files[proto]
    if file.syntax != "proto3":
        raise TrialError(
            f"{file.name} is {file.syntax or 'proto2'}, but JavaScript messages are proto3: write"
            ' syntax = "proto3"'
        )
    return _Module(file, files, runtime).text(notice)


@dataclass(frozen=True, slots=True)
class _Message:
    parts: tuple[str, ...]
    descriptor: DescriptorProto


@dataclass(frozen=True, slots=True)
class _Enum:
    parts: tuple[str, ...]
    descriptor: EnumDescriptorProto


class _Module:
    """The text of the module of one .proto file."""

    def __init__(
        self, file: FileDescriptorProto, files: Mapping[str, FileDescriptorProto], runtime: str
    ) -> None:
        self._file = file
        self._runtime = runtime
        self._types = list(_types(file))
        self._homes = {
            _full_name(other, kind.parts): (other, kind.parts)
            for other in files.values()
            for kind in _types(other)
        }
        self._imports: list[str] = []

    def text(self, notice: str) -> str:
        """Return all lines, imports first."""
        declared = [self._declaration(kind) for kind in self._types]
        filled = [self._fields(kind) for kind in self._types if isinstance(kind, _Message)]
        nested = [
            f"{_local(kind.parts[:-1])}.{_safe(kind.parts[-1])} = {_local(kind.parts)};"
            for kind in self._types
            if len(kind.parts) > 1
        ]
        blocks = [[f"// {notice}"], self._import_lines(), declared, filled, nested, self._exports()]
        return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"

    def _declaration(self, kind: _Message | _Enum) -> str:
        if isinstance(kind, _Message):
            name = json.dumps(_full_name(self._file, kind.parts))
            return f"const {_local(kind.parts)} = message({name});"
        values = ", ".join(f"{value.name}: {value.number}" for value in kind.descriptor.value)
        return f"const {_local(kind.parts)} = enumeration({{ {values} }});"

    def _fields(self, kind: _Message) -> str:
        rows = [self._row(kind, field) for field in _sorted(kind.descriptor.field)]
        if not rows:
            return f"fields({_local(kind.parts)}, []);"
        return "\n".join((f"fields({_local(kind.parts)}, [", *rows, "]);"))

    def _row(self, kind: _Message, field: FieldDescriptorProto) -> str:
        words = [str(field.number), json.dumps(self._name(kind, field))]
        entries = {
            f".{_full_name(self._file, (*kind.parts, nested.name))}": nested
            for nested in kind.descriptor.nested_type
            if nested.options.map_entry
        }
        if field.type_name in entries:
            key, value = _sorted(entries[field.type_name].field)
            words += [self._type(value), '"map"', json.dumps(_SCALARS[key.type])]
        else:
            words += [self._type(field), *_label(kind.descriptor, field)]
        return f"  [{', '.join(words)}],"

    def _name(self, kind: _Message, field: FieldDescriptorProto) -> str:
        if _full_name(self._file, kind.parts) == "google.protobuf.Any":
            return field.name  # protobufjs writes type_url, and so do its users
        return _safe(_camel(field.name))

    def _type(self, field: FieldDescriptorProto) -> str:
        if field.type != _MESSAGE:
            return json.dumps(_SCALARS[field.type])
        home, parts = self._homes[field.type_name.removeprefix(".")]
        if home is self._file:
            return _local(parts)
        if home.name not in self._imports:
            self._imports.append(home.name)
        return f"$${self._imports.index(home.name)}.{exported(home.package, parts)}"

    def _import_lines(self) -> list[str]:
        own = module_path(self._file.name)
        is_message = [isinstance(kind, _Message) for kind in self._types]
        names = (["fields", "message"] if any(is_message) else []) + (
            ["enumeration"] if not all(is_message) else []
        )
        lines = [
            f'import * as $${index} from "{import_path(own, module_path(path))}";'
            for index, path in enumerate(self._imports)
        ]
        if names:
            words = ", ".join(sorted(names))
            lines.append(f'import {{ {words} }} from "{import_path(own, self._runtime)}";')
        return lines

    def _exports(self) -> list[str]:
        top = [kind.parts for kind in self._types if len(kind.parts) == 1]
        outermost, *inner = self._file.package.split(".")
        if not outermost:
            names = ", ".join(f"{_local(parts)} as {_safe(parts[0])}" for parts in top)
            return [f"export {{ {names} }};"]
        lines = [f"  {_safe(parts[0])}: {_local(parts)}," for parts in top]
        opening = "{ " + "".join(f"{name}: {{ " for name in inner)
        closing = "}" + " }" * len(inner)
        return [
            f"const $ = {opening.rstrip()}",
            *lines,
            f"{closing};",
            f"export {{ $ as {outermost} }};",
        ]


def _types(file: FileDescriptorProto) -> Iterator[_Message | _Enum]:
    """Yield all messages and enumerations, outer ones first, without the entries of maps."""

    def walk(message: DescriptorProto, parts: tuple[str, ...]) -> Iterator[_Message | _Enum]:
        yield _Message(parts, message)
        for nested in message.nested_type:
            if not nested.options.map_entry:
                yield from walk(nested, (*parts, nested.name))
        for enum in message.enum_type:
            yield _Enum((*parts, enum.name), enum)

    for message in file.message_type:
        yield from walk(message, (message.name,))
    for enum in file.enum_type:
        yield _Enum((enum.name,), enum)


def _label(message: DescriptorProto, field: FieldDescriptorProto) -> list[str]:
    if field.label == _REPEATED:
        is_packed = not field.options.HasField("packed") or field.options.packed
        return ['"repeated"' if is_packed else '"unpacked"']
    if field.HasField("oneof_index") and not field.proto3_optional:
        group = _camel(message.oneof_decl[field.oneof_index].name)
        return ['"oneof"', json.dumps(_safe(group))]
    return ['"present"'] if field.proto3_optional or field.type == _MESSAGE else []


def _sorted(fields: Sequence[FieldDescriptorProto]) -> list[FieldDescriptorProto]:
    return sorted(fields, key=lambda field: field.number)


def _full_name(file: FileDescriptorProto, parts: Sequence[str]) -> str:
    return ".".join((file.package, *parts) if file.package else parts)


def _local(parts: Sequence[str]) -> str:
    """Return the name of a type in its module; no other name of the module begins with a $."""
    return "$" + "$".join(parts)


def _camel(name: str) -> str:
    """Return a field's name as protobufjs writes it."""
    return name[:1] + _HUMP.sub(lambda hump: hump[1].upper(), name[1:])


def _safe(name: str) -> str:
    return name + "_" if name in _TAKEN else name
