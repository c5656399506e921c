"""The AssemblyScript declarations of `guest_abi/assemblyscript`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import assert_never

from arkml.abi.layout import leaves_by_pointer, output_name, placed, struct_size
from arkml.abi.schema import (
    Api,
    Block,
    Function,
    Handle,
    Out,
    OutBlock,
    Outcome,
    OutSlice,
    Pad,
    Param,
    Ref,
    Scalar,
    Slice,
    Str,
    Struct,
)
from tools.abi.text import NOTICE, comment, enums, handles, sentence, structs, upper_snake

TYPES = "types.ts"
"""The file that the others import their types from."""


def files(apis: Sequence[Api]) -> dict[str, str]:
    """Return every file by name: one of types, and one for each API."""
    return {
        TYPES: "\n".join(_types(apis)),
        **{f"{api.stem}.ts": "\n".join(_api(api)) for api in apis},
    }


def _types(apis: Sequence[Api]) -> Iterator[str]:
    yield f"// {NOTICE}\n"
    for enum in enums(apis):
        yield from comment(sentence(enum), "//")
        yield f"export const enum {enum.__name__} {{"
        yield from (f"  {member.name} = {member.value}," for member in enum)
        yield "}\n"
    for handle in handles(apis):
        yield f"// {handle.doc}"
        yield f"export type {handle.name} = {handle.scalar.name};\n"
    for struct in structs(apis):
        yield from _struct(struct)


def _struct(struct: Struct) -> Iterator[str]:
    """Yield offsets and a size: a class could not hold text or arrays in line."""
    docs = {field.name: field.doc for field in struct.fields}
    yield from comment(struct.doc, "//")
    yield f"export namespace {struct.name} {{"
    yield f"  export const SIZE: usize = {struct_size(struct)};"
    for place in placed(struct):
        if not isinstance(place.type, Pad):
            if docs[place.name]:
                yield f"  // {docs[place.name]}"
            yield f"  export const {upper_snake(place.name)}: usize = {place.offset};"
    yield "}\n"


def _api(api: Api) -> Iterator[str]:
    used = dict.fromkeys(name for function in api.functions for name in _used(function))
    yield f"// {NOTICE}\n// {api.module}: {api.doc}\n"
    if used:
        yield f'import {{ {", ".join(used)} }} from "./types";\n'
    if api.id is not None:
        yield "// A guest that needs this API exports the address of this number."
        yield f"export const ID: u64 = {api.id:#018x};\n"
    for function in api.functions:
        arguments = [argument for param in function.params for argument in _arguments(param)]
        if leaves_by_pointer(function):
            arguments.append(f"{output_name(function)}: usize")
        yield from comment(function.doc, "//")
        yield f'@external("{api.module}", "{api.symbol(function)}")'
        yield f"export declare function {function.name}("
        yield from (f"  {argument}," for argument in arguments)
        yield f"): {_result(function)};\n"


def _arguments(param: Param) -> list[str]:
    name = param.name
    match param.type:
        case Str() | Slice() | OutSlice():
            return [f"{name}_ptr: usize", f"{name}_len: u32"]
        case Ref() | Out() | Block() | OutBlock():
            return [f"{name}: usize"]
        case Scalar() | Handle() | type() as kind:
            return [f"{name}: {_name(kind)}"]
        case _:
            assert_never(param.type)


def _used(function: Function) -> Iterator[str]:
    """Yield the names of the types in the declaration of `function`."""
    for param in function.params:
        if isinstance(param.type, (Handle, type)):
            yield _name(param.type)
    if function.outcome is Outcome.CODE:
        yield "ErrorCode"


def _result(function: Function) -> str:
    match function.outcome:
        case Outcome.CODE:
            return "ErrorCode"
        case Outcome.VALUE:
            return "u32"
        case Outcome.NONE | Outcome.NEVER:
            return "void"
        case _:
            assert_never(function.outcome)


def _name(kind: Scalar | Handle | type[IntEnum]) -> str:
    return kind.__name__ if isinstance(kind, type) else kind.name
