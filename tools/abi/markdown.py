"""The ABI reference of `docs/abi`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import assert_never

from arkml.abi.layout import (
    leaves_by_pointer,
    lower,
    output_name,
    placed,
    size_of,
    struct_align,
    struct_size,
)
from arkml.abi.schema import (
    F64,
    Api,
    Array,
    Block,
    Bytes,
    FieldType,
    FixedStr,
    Function,
    Handle,
    Lane,
    Out,
    OutBlock,
    Outcome,
    OutSlice,
    Pad,
    ParamType,
    Ref,
    ReturnType,
    Scalar,
    Slice,
    Str,
    Struct,
    Text,
)
from arkml.abi.wat import signature
from tools.abi.text import NOTICE, sentence

_LANES = {
    Lane.HOST: "one call of the host",
    Lane.LOG: "in wasm alone where the level is off, else one call of the host",
    Lane.PUSH: "in wasm alone: appends a row without calling the host",
    Lane.SUBMIT: "checked in wasm, then suspended until a policy has answered",
    Lane.ANSWER: "suspended until a policy has answered, then one call of the host",
}

_INTRODUCTION = """\
# The guest ABI

A guest imports these modules. Text and slices cross as a pointer and a length, structs as a
pointer, handles and enums as numbers. A result leaves through the last pointer, and the wasm
result is an [ErrorCode](ark-core-v0.md#errorcode); on an error nothing is written. A result that
is bytes or text is kept by the host: the last pointer receives its size, and the guest fetches it
at once with [core__take_host_return_vec](ark-core-v4.md#core__take_host_return_vec). A pointer
with length 0 is ignored. Any import may answer InternalError after a fault of the host itself.

| module | API id | functions | |
| --- | --- | ---: | --- |"""


def pages(apis: Sequence[Api]) -> dict[str, str]:
    """Return every page by file name: an index, and one page for each API."""
    homes: dict[str, str] = {}
    for api in apis:
        names = [_name(kind) for kinds in (api.enums, api.handles, api.structs) for kind in kinds]
        homes |= dict.fromkeys(names, f"{api.module}.md")
    index = [f"<!-- {NOTICE} -->", _INTRODUCTION]
    for api in apis:
        number = "" if api.id is None else f"`{api.id:#018x}`"
        link = f"[{api.module}]({api.module}.md)"
        index.append(f"| {link} | {number} | {len(api.functions)} | {api.doc} |")
    texts = {f"{api.module}.md": "\n".join(_page(api, homes)) + "\n" for api in apis}
    return {"README.md": "\n".join(index) + "\n", **texts}


def _page(api: Api, homes: dict[str, str]) -> Iterator[str]:
    yield f"<!-- {NOTICE} -->\n# `{api.module}`\n\n{api.doc}"
    if api.id is not None:
        yield f"\nAPI id `{api.id:#018x}`."
    yield "\n## Functions"
    for function in api.functions:
        yield from _function(api, function, homes)
    if api.handles:
        yield "\n## Handles"
        for handle in api.handles:
            yield f"\n### {handle.name}\n\n{handle.doc} A {handle.scalar.name}; 0 is never valid."
    if api.structs:
        yield "\n## Structs"
        for struct in api.structs:
            yield from _struct(struct, homes)
    if api.enums:
        yield "\n## Enums"
        for enum in api.enums:
            yield f"\n### {enum.__name__}\n\n{sentence(enum)}\n\n| number | name |\n| ---: | --- |"
            yield from (f"| {member.value} | {member.name} |" for member in enum)


def _function(api: Api, function: Function, homes: dict[str, str]) -> Iterator[str]:
    yield f"\n### {api.symbol(function)}\n\n{function.doc}\n"
    yield f"```wat\n(func{signature(function)})\n```"
    rows = [
        (", ".join(f"`{slot.name}`" for slot in lower(param)), _describe(param.type, homes))
        for param in function.params
    ]
    if function.returns is not None and leaves_by_pointer(function):
        rows.append((f"`{output_name(function)}`", _describe_result(function.returns, homes)))
    if rows:
        yield "\n| argument | description |\n| --- | --- |"
        yield from (f"| {names} | {description} |" for names, description in rows)
    yield f"\nResult: {_result(function, homes)}\\\nLane: {_LANES[function.lane]}."


def _result(function: Function, homes: dict[str, str]) -> str:
    codes = ", ".join(f"{code.name} ({code.value})" for code in function.errors)
    match function.outcome:
        case Outcome.CODE:
            answer = _link("ErrorCode", homes)
            return f"{answer}: SUCCESS (0){', ' + codes if codes else ''}."
        case Outcome.VALUE if function.returns is F64:
            return "an f64."
        case Outcome.VALUE:
            return f"a u32{f': 0, or {codes}' if codes else ''}."
        case Outcome.NONE:
            return "none."
        case Outcome.NEVER:
            return "the call does not return."
        case _:
            assert_never(function.outcome)


def _struct(struct: Struct, homes: dict[str, str]) -> Iterator[str]:
    size, align = struct_size(struct), struct_align(struct)
    docs = {field.name: field.doc for field in struct.fields}
    yield f"\n### {struct.name}\n\n{struct.doc} {size} bytes, aligned to {align}.\n"
    yield "| offset | size | field | type | |\n| ---: | ---: | --- | --- | --- |"
    for place in placed(struct):
        kind = _describe_field(place.type, homes)
        start = f"| {place.offset} | {size_of(place.type)} | `{place.name}`"
        yield f"{start} | {kind} | {docs[place.name]} |"


def _describe(kind: ParamType, homes: dict[str, str]) -> str:
    match kind:
        case Str(lossy=lossy):
            return "text, UTF-8" + (" (invalid bytes are replaced)" if lossy else "")
        case Slice(item=item):
            return f"{_link(item.name, homes)} items to read"
        case OutSlice(item=item):
            return f"memory for {_link(item.name, homes)} items"
        case Ref(struct=struct):
            return f"pointer to a {_link(struct.name, homes)} to read"
        case Out(type=inner):
            return f"pointer to memory for a {_link(inner.name, homes)}"
        case Block(size=size):
            return f"pointer to `{size}` bytes to read"
        case OutBlock(size=size):
            return f"pointer to memory for `{size}` bytes"
        case Scalar() | Handle() | type():
            return _link(_name(kind), homes)
        case _:
            assert_never(kind)


def _describe_result(kind: ReturnType, homes: dict[str, str]) -> str:
    match kind:
        case Bytes():
            return "receives the size of the bytes (u32)"
        case Text():
            return "receives the size of the text (u32)"
        case Scalar() | Handle() | Struct():
            return f"receives a {_link(kind.name, homes)}"
        case _:
            assert_never(kind)


def _describe_field(kind: FieldType, homes: dict[str, str]) -> str:
    match kind:
        case FixedStr(capacity=capacity):
            return f"u32 length, then {capacity} bytes of UTF-8"
        case Array(item=item, count=count):
            return f"{count} {item.name} items"
        case Pad():
            return "padding"
        case Scalar() | Handle() | Struct() | type():
            return _link(_name(kind), homes)
        case _:
            assert_never(kind)


def _link(name: str, homes: dict[str, str]) -> str:
    return f"[{name}]({homes[name]}#{name.lower()})" if name in homes else name


def _name(kind: Scalar | Handle | Struct | type[IntEnum]) -> str:
    return kind.__name__ if isinstance(kind, type) else kind.name
