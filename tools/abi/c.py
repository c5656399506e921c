"""The C headers of `guest_abi/c`."""

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
    Field,
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
from tools.abi.text import (
    NOTICE,
    capacities,
    comment,
    enums,
    handles,
    sentence,
    structs,
    upper_snake,
)

TYPES = "ark_types.h"
"""The header that every other one includes."""

_MACROS = """\
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define ARK_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define ARK_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif

#ifdef __wasm__
/* Marks a function that the host implements. */
#define ARK_IMPORT(module, symbol) \\
    __attribute__((import_module(module), import_name(symbol)))
/* Marks a function that the host calls. */
#define ARK_EXPORT(name) __attribute__((export_name(name), used))
#else
#define ARK_IMPORT(module, symbol)
#define ARK_EXPORT(name)
#endif
"""


def headers(apis: Sequence[Api]) -> dict[str, str]:
    """Return every header by file name: one of types, and one for each family of versions."""
    prefixes = dict.fromkeys(api.prefix for api in apis)
    families = {
        f"ark_{prefix}.h": "\n".join(
            line for api in apis if api.prefix == prefix for line in _functions(api)
        )
        for prefix in prefixes
    }
    texts = {name: _guarded(name, f'#include "{TYPES}"\n', text) for name, text in families.items()}
    return {TYPES: _guarded(TYPES, _MACROS, "\n".join(_types(apis))), **texts}


def _guarded(name: str, preamble: str, body: str) -> str:
    guard = name.upper().replace(".", "_")
    return f"""\
/* {NOTICE} */
#ifndef {guard}
#define {guard}

{preamble}
#ifdef __cplusplus
extern "C" {{
#endif

{body}
#ifdef __cplusplus
}}
#endif

#endif /* {guard} */
"""


def _types(apis: Sequence[Api]) -> Iterator[str]:
    for api in apis:
        if api.id is not None:
            yield f"#define ARK_{upper_snake(api.stem)}_ID UINT64_C({api.id:#018x})"
    yield ""
    for enum in enums(apis):
        yield from _enum(enum)
    for handle in handles(apis):
        yield f"/* {handle.doc} */"
        yield f"typedef {handle.scalar.c} {_name(handle)};"
    for capacity in capacities(apis):
        yield "\n/* UTF-8; only the first `length` bytes of `bytes` count. */\ntypedef struct {"
        yield f"    uint32_t length;\n    uint8_t bytes[{capacity}];"
        yield f"}} ArkFixedStr{capacity};"
    for struct in structs(apis):
        yield from _struct(struct)


def _enum(enum: type[IntEnum]) -> Iterator[str]:
    yield from _block(sentence(enum))
    yield f"typedef uint32_t {_name(enum)};"
    yield "enum {"
    for member in enum:
        yield f"    ARK_{upper_snake(enum.__name__)}_{member.name} = {member.value},"
    yield "};\n"


def _struct(struct: Struct) -> Iterator[str]:
    yield ""
    yield from _block(struct.doc)
    yield "typedef struct {"
    for field in struct.fields:
        if field.doc:
            yield f"    /* {field.doc} */"
        yield f"    {_member(field)};"
    name = _name(struct)
    yield f"}} {name};"
    for place in placed(struct):
        yield (
            f"ARK_STATIC_ASSERT(offsetof({name}, {place.name}) == {place.offset}, "
            f'"{name}.{place.name}");'
        )
    yield f'ARK_STATIC_ASSERT(sizeof({name}) == {struct_size(struct)}, "{name}");'


def _member(field: Field) -> str:
    match field.type:
        case FixedStr(capacity=capacity):
            return f"ArkFixedStr{capacity} {field.name}"
        case Array(item=item, count=count):
            return f"{item.c} {field.name}[{count}]"
        case Pad(size=size):
            return f"uint8_t {field.name}[{size}]"
        case Scalar() | Handle() | Struct() | type() as kind:
            return f"{_name(kind)} {field.name}"
        case _:
            assert_never(field.type)


def _functions(api: Api) -> Iterator[str]:
    yield f"/* {api.module}: {api.doc} */\n"
    for function in api.functions:
        arguments = [argument for param in function.params for argument in _arguments(param)]
        if leaves_by_pointer(function):
            arguments.append(f"{_output(function)} *{output_name(function)}")
        yield from _block(function.doc)
        yield f'ARK_IMPORT("{api.module}", "{api.symbol(function)}")'
        yield f"{_result(function)} ark_{api.stem}_{function.name}("
        yield ",\n".join(f"    {argument}" for argument in arguments or ["void"]) + ");\n"


def _arguments(param: Param) -> list[str]:
    name = param.name
    match param.type:
        case Str():
            return [f"const uint8_t *{name}_ptr", f"uint32_t {name}_len"]
        case Slice(item=item):
            return [f"const {_name(item)} *{name}_ptr", f"uint32_t {name}_len"]
        case OutSlice(item=item):
            return [f"{_name(item)} *{name}_ptr", f"uint32_t {name}_len"]
        case Ref(struct=struct):
            return [f"const {_name(struct)} *{name}"]
        case Out(type=kind):
            return [f"{_name(kind)} *{name}"]
        case Block():
            return [f"const uint8_t *{name}"]
        case OutBlock():
            return [f"uint8_t *{name}"]
        case Scalar() | Handle() | type() as kind:
            return [f"{_name(kind)} {name}"]
        case _:
            assert_never(param.type)


def _output(function: Function) -> str:
    match function.returns:
        case Bytes() | Text() | None:
            return U32.c
        case kind:
            return _name(kind)


def _result(function: Function) -> str:
    match function.outcome:
        case Outcome.CODE:
            return "ArkErrorCode"
        case Outcome.VALUE:
            return U32.c
        case Outcome.NONE | Outcome.NEVER:
            return "void"
        case _:
            assert_never(function.outcome)


def _name(kind: Scalar | Handle | Struct | type[IntEnum]) -> str:
    match kind:
        case Scalar(c=c):
            return c
        case Handle(name=name) | Struct(name=name):
            return name if name.startswith("Ark") else f"Ark{name}"
        case type():
            return f"Ark{kind.__name__}"
        case _:
            assert_never(kind)


def _block(text: str) -> list[str]:
    """Return the lines of a comment."""
    lines = list(comment(text, " *"))
    if len(lines) == 1:
        return [f"/* {text} */"]
    return ["/*", *lines, " */"]
