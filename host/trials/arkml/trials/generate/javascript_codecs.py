"""JavaScript modules with message types, generated from descriptors, for `protobuf.js`."""

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

SCALARS: Final = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32",
    8: "bool", 9: "string", 12: "bytes", 13: "uint32", 14: "enum", 15: "sfixed32", 16: "sfixed64",
    17: "sint32", 18: "sint64",
}  # fmt: skip
MESSAGE: Final = 11
REPEATED: Final = 3
_TAKEN: Final = {"constructor", "create", "decode", "encode", "getTypeUrl", "prototype"}
_HUMP = re.compile(r"_([a-z])(?=[a-z]|$)")


def module_path(proto: str) -> str:
    """Return the path of a .proto file's JavaScript module within the output folder."""
    return proto.removesuffix(".proto") + "_pb.js"


def import_path(importer: str, imported: str) -> str:
    """Return the relative path by which one module imports another."""
    path = posixpath.relpath(imported, posixpath.dirname(importer) or ".")
    return path if path.startswith("../") else f"./{path}"


def exported(package: str, parts: Sequence[str]) -> str:
    """Return the JavaScript expression of a message type among the exports of its module."""
    return ".".join((*filter(None, package.split(".")), *map(safe_name, parts)))


def module_text(
    proto: str, files: Mapping[str, FileDescriptorProto], notice: str, runtime: str
) -> str:
    """
    Return the text of a .proto file's JavaScript module, beginning with a notice.

    Args:
        proto: Path of the .proto file.
        files: Descriptors of all files by path.
        notice: First line of the module.
        runtime: Path of `protobuf.js` within the output folder.

    Raises:
        TrialError: The file is not proto3.

    """
    file = files[proto]
    if file.syntax != "proto3":
        raise TrialError(
            f"{file.name} is {file.syntax or 'proto2'}, but JavaScript messages are proto3: write"
            ' syntax = "proto3"'
        )
    return _Module(file, files, runtime).text(notice)


@dataclass(frozen=True, slots=True)
class MessageNode:
    """
    A message type of a .proto file.

    `parts` is its name within its package: the names of outer messages, then its own.
    """

    parts: tuple[str, ...]
    descriptor: DescriptorProto


@dataclass(frozen=True, slots=True)
class EnumNode:
    """
    An enumeration of a .proto file.

    `parts` is its name within its package: the names of outer messages, then its own.
    """

    parts: tuple[str, ...]
    descriptor: EnumDescriptorProto


class ModuleText:
    """
    The text of a JavaScript module about one .proto file, and the imports that the text needs.

    Args:
        file: Descriptor of the .proto file.
        files: Descriptors of all files by path.
        runtime: Path of `protobuf.js` within the output folder.

    """

    def __init__(
        self, file: FileDescriptorProto, files: Mapping[str, FileDescriptorProto], runtime: str
    ) -> None:
        self._file = file
        self._runtime = runtime
        self._types = list(types_in(file))
        self._homes = {
            full_name(other, kind.parts): (other, kind.parts)
            for other in files.values()
            for kind in types_in(other)
        }
        self._imports: list[str] = []

    def _home(self, field: FieldDescriptorProto) -> tuple[str, FileDescriptorProto, Sequence[str]]:
        """Return the import of a field's type, empty for an own one, its file and its name."""
        home, parts = self._homes[field.type_name.removeprefix(".")]
        if home is self._file:
            return "", home, parts
        if home.name not in self._imports:
            self._imports.append(home.name)
        return f"$${self._imports.index(home.name)}", home, parts


class _Module(ModuleText):
    """The text of one .proto file's module."""

    def text(self, notice: str) -> str:
        """Return the whole text, imports first."""
        declared = [self._declaration(kind) for kind in self._types]
        filled = [self._fields(kind) for kind in self._types if isinstance(kind, MessageNode)]
        nested = [
            f"{local_name(kind.parts[:-1])}.{safe_name(kind.parts[-1])} = {local_name(kind.parts)};"
            for kind in self._types
            if len(kind.parts) > 1
        ]
        blocks = [[f"// {notice}"], self._import_lines(), declared, filled, nested, self._exports()]
        return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"

    def _declaration(self, kind: MessageNode | EnumNode) -> str:
        if isinstance(kind, MessageNode):
            name = json.dumps(full_name(self._file, kind.parts))
            return f"const {local_name(kind.parts)} = message({name});"
        values = ", ".join(f"{value.name}: {value.number}" for value in kind.descriptor.value)
        return f"const {local_name(kind.parts)} = enumeration({{ {values} }});"

    def _fields(self, kind: MessageNode) -> str:
        rows = [self._row(kind, field) for field in by_number(kind.descriptor.field)]
        if not rows:
            return f"fields({local_name(kind.parts)}, []);"
        return "\n".join((f"fields({local_name(kind.parts)}, [", *rows, "]);"))

    def _row(self, kind: MessageNode, field: FieldDescriptorProto) -> str:
        words = [str(field.number), json.dumps(field_name(self._file, kind, field))]
        entries = map_entries(self._file, kind)
        if field.type_name in entries:
            key, value = by_number(entries[field.type_name].field)
            words += [self._type(value), '"map"', json.dumps(SCALARS[key.type])]
        else:
            words += [self._type(field), *label_of(kind.descriptor, field)]
        return f"  [{', '.join(words)}],"

    def _type(self, field: FieldDescriptorProto) -> str:
        if field.type != MESSAGE:
            return json.dumps(SCALARS[field.type])
        alias, home, parts = self._home(field)
        return f"{alias}.{exported(home.package, parts)}" if alias else local_name(parts)

    def _import_lines(self) -> list[str]:
        own = module_path(self._file.name)
        is_message = [isinstance(kind, MessageNode) for kind in self._types]
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
            names = ", ".join(f"{local_name(parts)} as {safe_name(parts[0])}" for parts in top)
            return [f"export {{ {names} }};"]
        lines = [f"  {safe_name(parts[0])}: {local_name(parts)}," for parts in top]
        opening = "{ " + "".join(f"{name}: {{ " for name in inner)
        closing = "}" + " }" * len(inner)
        return [
            f"const $ = {opening.rstrip()}",
            *lines,
            f"{closing};",
            f"export {{ $ as {outermost} }};",
        ]


def types_in(file: FileDescriptorProto) -> Iterator[MessageNode | EnumNode]:
    """Yield all messages and enumerations of a file, outer ones first, except maps' entry types."""

    def walk(message: DescriptorProto, parts: tuple[str, ...]) -> Iterator[MessageNode | EnumNode]:
        yield MessageNode(parts, message)
        for nested in message.nested_type:
            if not nested.options.map_entry:
                yield from walk(nested, (*parts, nested.name))
        for enum in message.enum_type:
            yield EnumNode((*parts, enum.name), enum)

    for message in file.message_type:
        yield from walk(message, (message.name,))
    for enum in file.enum_type:
        yield EnumNode((enum.name,), enum)


def field_name(file: FileDescriptorProto, kind: MessageNode, field: FieldDescriptorProto) -> str:
    """
    Return the name of the JavaScript property that holds a field.

    Args:
        file: Descriptor of the .proto file.
        kind: The message type that has the field.
        field: Descriptor of the field.

    """
    if full_name(file, kind.parts) == "google.protobuf.Any":
        return field.name  # protobufjs and its users write type_url, not typeUrl
    return safe_name(camel_name(field.name))


def map_entries(file: FileDescriptorProto, kind: MessageNode) -> dict[str, DescriptorProto]:
    """Return the entry types of a message's maps, by the type names that fields use."""
    return {
        f".{full_name(file, (*kind.parts, nested.name))}": nested
        for nested in kind.descriptor.nested_type
        if nested.options.map_entry
    }


def label_of(message: DescriptorProto, field: FieldDescriptorProto) -> list[str]:
    """Return protobufjs's label of a field that is not a map, and its oneof if it has one."""
    if field.label == REPEATED:
        is_packed = not field.options.HasField("packed") or field.options.packed
        return ['"repeated"' if is_packed else '"unpacked"']
    if field.HasField("oneof_index") and not field.proto3_optional:
        group = camel_name(message.oneof_decl[field.oneof_index].name)
        return ['"oneof"', json.dumps(safe_name(group))]
    return ['"present"'] if field.proto3_optional or field.type == MESSAGE else []


def by_number(fields: Sequence[FieldDescriptorProto]) -> list[FieldDescriptorProto]:
    """Return fields of a message in order of their numbers."""
    return sorted(fields, key=lambda field: field.number)


def full_name(file: FileDescriptorProto, parts: Sequence[str]) -> str:
    """Return the name of a type including its package."""
    return ".".join((file.package, *parts) if file.package else parts)


def local_name(parts: Sequence[str]) -> str:
    """Return the name of a type within its JavaScript module; only such names begin with a $."""
    return "$" + "$".join(parts)


def camel_name(name: str) -> str:
    """Return a field's name in protobufjs's camel case."""
    return name[:1] + _HUMP.sub(lambda hump: hump[1].upper(), name[1:])


def safe_name(name: str) -> str:
    """Return a property name that does not clash with a property of all messages."""
    return name + "_" if name in _TAKEN else name
