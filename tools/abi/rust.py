"""The Rust module of `guest_abi/rust`: no_std, edition 2021, Rust 1.63 or newer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import assert_never

from arkml.abi.layout import leaves_by_pointer, output_name, placed, struct_size
from arkml.abi.schema import (
    U32,
    Api,
    Array,
    Block,
    Bytes,
    FieldType,
    FixedStr,
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
    Text,
)
from tools.abi.text import NOTICE, capacities, comment, enums, handles, sentence, structs

_PREAMBLE = f"""\
// {NOTICE}
//! The imports of an ark guest. Depends on `core` alone.
//!
//! Numbers from the host are wrapped (`ErrorCode(6)`) and never a Rust `enum`, so that a number
//! unknown to this file is not undefined behavior.

#![allow(dead_code)]

use core::mem::size_of;
"""

_WRAPPED = "#[repr(transparent)]\n#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]"
_RECORD = "#[repr(C)]\n#[derive(Clone, Copy, Debug)]"


def module(apis: Sequence[Api]) -> str:
    """Render types, and a module of extern functions for each API."""
    return "\n".join([_PREAMBLE, *_types(apis), *(line for api in apis for line in _api(api))])


def _types(apis: Sequence[Api]) -> Iterator[str]:
    for enum in enums(apis):
        yield from _enum(enum)
    for handle in handles(apis):
        yield f"/// {handle.doc}\n{_WRAPPED}"
        yield f"pub struct {handle.name}(pub {handle.scalar.name});\n"
    for capacity in capacities(apis):
        yield "/// UTF-8; only the first `length` bytes of `bytes` count."
        yield f"{_RECORD}\npub struct FixedStr{capacity} {{"
        yield f"    pub length: u32,\n    pub bytes: [u8; {capacity}],\n}}\n"
    for struct in structs(apis):
        yield from _struct(struct)


def _enum(enum: type[IntEnum]) -> Iterator[str]:
    yield from comment(sentence(enum), "///")
    yield f"{_WRAPPED}\npub struct {enum.__name__}(pub u32);\n"
    yield f"impl {enum.__name__} {{"
    yield from (f"    pub const {member.name}: Self = Self({member.value});" for member in enum)
    yield "}\n"


def _struct(struct: Struct) -> Iterator[str]:
    yield from comment(struct.doc, "///")
    yield f"{_RECORD}\npub struct {struct.name} {{"
    for field in struct.fields:
        if field.doc:
            yield f"    /// {field.doc}"
        yield f"    pub {field.name}: {_field(field.type)},"
    yield "}\n"
    # Rust 1.63 has no offset_of. Fields of `repr(C)` lie in order, so an offset is the sum of
    # the sizes before it as long as the sum of them all is the size of the struct.
    before: list[str] = []
    yield "const _: () = {"
    for place in placed(struct):
        yield f"    // {place.name}"
        yield f"    assert!({' + '.join(before) or '0'} == {place.offset});"
        before.append(f"size_of::<{_field(place.type)}>()")
    yield f"    assert!({' + '.join(before)} == {struct_size(struct)});"
    yield f"    assert!(size_of::<{struct.name}>() == {struct_size(struct)});"
    yield "};\n"


def _api(api: Api) -> Iterator[str]:
    yield f"/// `{api.module}`: {api.doc}"
    yield f"pub mod {api.stem} {{"
    yield "    #[allow(unused_imports)]\n    use super::*;\n"
    if api.id is not None:
        yield "    /// A guest that needs this API exports the address of this number."
        yield f"    pub const ID: u64 = {api.id:#018x};\n"
    yield f'    #[cfg_attr(target_arch = "wasm32", link(wasm_import_module = "{api.module}"))]'
    yield '    extern "C" {'
    for function in api.functions:
        arguments = [argument for param in function.params for argument in _arguments(param)]
        if leaves_by_pointer(function):
            arguments.append(f"{output_name(function)}: *mut {_output(function)}")
        yield from comment(function.doc, "///", "        ")
        # Two APIs may have a function of one name, and only wasm has modules.
        wasm, native = api.symbol(function), f"ark_{api.stem}_{function.name}"
        yield f'        #[cfg_attr(target_arch = "wasm32", link_name = "{wasm}")]'
        yield f'        #[cfg_attr(not(target_arch = "wasm32"), link_name = "{native}")]'
        yield f"        pub fn {function.name}("
        yield from (f"            {argument}," for argument in arguments)
        yield f"        ){_result(function)};\n"
    yield "    }\n}\n"


def _field(kind: FieldType) -> str:
    match kind:
        case FixedStr(capacity=capacity):
            return f"FixedStr{capacity}"
        case Array(item=item, count=count):
            return f"[{item.name}; {count}]"
        case Pad(size=size):
            return f"[u8; {size}]"
        case Scalar() | Handle() | Struct() | type():
            return _name(kind)
        case _:
            assert_never(kind)


def _arguments(param: Param) -> list[str]:
    name = param.name
    match param.type:
        case Str():
            return [f"{name}_ptr: *const u8", f"{name}_len: u32"]
        case Slice(item=item):
            return [f"{name}_ptr: *const {item.name}", f"{name}_len: u32"]
        case OutSlice(item=item):
            return [f"{name}_ptr: *mut {item.name}", f"{name}_len: u32"]
        case Ref(struct=struct):
            return [f"{name}: *const {struct.name}"]
        case Out(type=kind):
            return [f"{name}: *mut {kind.name}"]
        case Block():
            return [f"{name}: *const u8"]
        case OutBlock():
            return [f"{name}: *mut u8"]
        case Scalar() | Handle() | type() as kind:
            return [f"{name}: {_name(kind)}"]
        case _:
            assert_never(param.type)


def _output(function: Function) -> str:
    match function.returns:
        case Bytes() | Text() | None:
            return U32.name
        case kind:
            return kind.name


def _result(function: Function) -> str:
    match function.outcome:
        case Outcome.CODE:
            return " -> ErrorCode"
        case Outcome.VALUE:
            return f" -> {U32.name}"
        case Outcome.NONE:
            return ""
        case Outcome.NEVER:
            return " -> !"
        case _:
            assert_never(function.outcome)


def _name(kind: Scalar | Handle | Struct | type[IntEnum]) -> str:
    return kind.__name__ if isinstance(kind, type) else kind.name
