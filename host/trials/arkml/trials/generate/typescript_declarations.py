"""TypeScript declarations for the modules of message types (`_pb.d.ts`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from arkml.trials.generate.javascript_codecs import (
    MESSAGE,
    REPEATED,
    SCALARS,
    EnumNode,
    MessageNode,
    ModuleText,
    by_number,
    exported,
    field_name,
    import_path,
    label_of,
    local_name,
    map_entries,
    module_path,
    safe_name,
)

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

_WORDS: Final = {"bool": "boolean", "string": "string", "bytes": "Uint8Array"}
_LONG: Final = "number | bigint"
_LONGS: Final = ("int64", "uint64", "sint64", "fixed64", "sfixed64")


def declaration_path(proto: str) -> str:
    """Return the path of a .proto file's TypeScript declarations, next to its JavaScript module."""
    return module_path(proto).removesuffix(".js") + ".d.ts"


def declaration_text(
    proto: str, files: Mapping[str, FileDescriptorProto], notice: str, runtime: str
) -> str:
    """
    Return the TypeScript declarations of a .proto file's JavaScript module.

    Args:
        proto: Path of the .proto file.
        files: Descriptors of all files by path.
        notice: First line of the declarations.
        runtime: Path of `protobuf.js` within the output folder.

    """
    return _Declarations(files[proto], files, runtime).text(notice)


class _Declarations(ModuleText):
    """The declarations of one .proto file's module."""

    def text(self, notice: str) -> str:
        """Return the whole text, imports first."""
        declared = [self._declaration(kind) for kind in self._types]
        blocks = [f"// {notice}", self._import_lines(), *declared, self._exports()]
        return "\n\n".join(blocks) + "\n"

    def _import_lines(self) -> str:
        own = module_path(self._file.name)
        runtime = import_path(own, self._runtime)
        lines = [f'import {{ MessageBase, type Encoded }} from "{runtime}";']
        lines += [
            f'import type * as $${index} from "{import_path(own, module_path(path))}";'
            for index, path in enumerate(self._imports)
        ]
        return "\n".join(lines)

    def _declaration(self, kind: MessageNode | EnumNode) -> str:
        name = local_name(kind.parts)
        if isinstance(kind, EnumNode):
            values = "".join(f"  {one.name} = {one.number},\n" for one in kind.descriptor.value)
            return f"declare enum {name} {{\n{values}}}"
        given, held, groups = [], [], dict[str, list[str]]()
        entries = map_entries(self._file, kind)
        for field in by_number(kind.descriptor.field):
            own = json.dumps(field_name(self._file, kind, field))
            if field.type_name in entries:
                _, value = by_number(entries[field.type_name].field)
                given.append(f"  {own}?: {{ [key: string]: {self._type(value, '$I')} }} | null;")
                held.append(f"  {own}: {{ [key: string]: {self._type(value)} }};")
                continue
            label, *group = label_of(kind.descriptor, field) or [""]
            given.append(f"  {own}?: {self._given(field)} | null;")
            held.append(f"  {own}: {self._held(field, label)};")
            if group:
                groups.setdefault(group[0], []).append(own)
        held += [
            f"  readonly {name}: {' | '.join(members)} | undefined;"
            for name, members in groups.items()
        ]
        return "\n".join(
            (
                f"interface $I{name} {{",
                *given,
                "}",
                f"declare class {name} extends MessageBase {{",
                f"  constructor(properties?: $I{name} | null);",
                f"  static create(properties?: $I{name} | null): {name};",
                f"  static encode(object: $I{name}): Encoded;",
                f"  static decode(bytes: Uint8Array): {name};",
                "  static getTypeUrl(): string;",
                *held,
                "}",
                *self._nested(kind),
            )
        )

    def _nested(self, kind: MessageNode) -> list[str]:
        inner = [one for one in self._types if one.parts[:-1] == kind.parts]
        if not inner:
            return []
        return [f"declare namespace {local_name(kind.parts)} {{ {_exported(inner)} }}"]

    def _given(self, field: FieldDescriptorProto) -> str:
        """Return the type of values that a field accepts."""
        one = self._type(field, "$I")
        if field.label != REPEATED:
            return one
        return f"ArrayLike<{one}>" if one in ("number", _LONG) else f"readonly ({one})[]"

    def _held(self, field: FieldDescriptorProto, label: str) -> str:
        """Return the type of values that a field returns."""
        one = self._type(field)
        if field.label == REPEATED:
            return f"({one})[]"
        return f"{one} | null" if label in ('"present"', '"oneof"') else one

    def _type(self, field: FieldDescriptorProto, prefix: str = "") -> str:
        scalar = SCALARS.get(field.type)
        if field.type_name:
            alias, home, parts = self._home(field)
            before = prefix if field.type == MESSAGE else ""
            if not alias:
                return before + local_name(parts)
            place = exported(home.package, parts)
            if before:
                place = f"{'.'.join(place.split('.')[:-1])}.I{safe_name(parts[-1])}".lstrip(".")
            return f"{alias}.{place}"
        return _LONG if scalar in _LONGS else _WORDS.get(str(scalar), "number")

    def _exports(self) -> str:
        names = _exported([kind for kind in self._types if len(kind.parts) == 1])
        outermost, *inner = self._file.package.split(".")
        if not outermost:
            return names
        opening = "".join(f"export namespace {name} {{ " for name in inner)
        return (
            f"declare namespace $ {{ {opening}{names}{' }' * len(inner)} }}\n"
            f"export {{ $ as {outermost} }};"
        )


def _exported(kinds: list[MessageNode | EnumNode]) -> str:
    """Return the exports of types, and of messages' interfaces, by their own names."""
    taken = {safe_name(kind.parts[-1]) for kind in kinds}
    words = []
    for kind in kinds:
        name, own = local_name(kind.parts), safe_name(kind.parts[-1])
        words.append(f"{name} as {own}")
        if isinstance(kind, MessageNode) and f"I{own}" not in taken:
            words.append(f"$I{name} as I{own}")
    return f"export {{ {', '.join(words)} }};"
