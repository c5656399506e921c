"""A table of a guest's imports for a web page, derived from the tables of the ABI."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, TypeAlias, assert_never

from arkml.abi.catalog import find
from arkml.abi.codes import ErrorCode
from arkml.abi.layout import leaves_by_pointer, placed, size_of, slots, struct_size
from arkml.abi.schema import (
    BOOL,
    F32,
    F64,
    I64,
    U8,
    U32,
    U64,
    Api,
    Array,
    Block,
    Bytes,
    FixedStr,
    Function,
    Handle,
    Lane,
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

Row: TypeAlias = dict[str, Any]

_NUMBERS = {BOOL: "u32", U8: "u32", U32: "u32", U64: "u64", I64: "i64", F32: "float", F64: "float"}


def imports_table(imported: Iterable[tuple[str, str]]) -> Row:
    """
    Return, as JSON values, the imported functions by module and symbol, and the codes of the ABI.

    Functions that are in no table of the ABI, for example of a game or of WASI, are left out.
    """
    found = [(module, find(module, symbol)) for module, symbol in sorted(set(imported))]
    rows = [_row(*row) for _, row in found if row is not None]
    return {"codes": {code.name: code.value for code in ErrorCode}, "functions": rows}


def _row(api: Api, function: Function) -> Row:
    row: Row = {
        "module": api.module,
        "symbol": api.symbol(function),
        "lane": function.lane.value,
        "outcome": function.outcome.value,
        "isSure": function.outcome is Outcome.CODE and not function.errors,
    }
    places = {slot.name: place for place, slot in enumerate(slots(function))}
    match function.lane:
        case Lane.HOST | Lane.LOG:
            row["handler"] = function.handler
            row["consumes"] = function.consumes
            row["params"] = [_param(param, places) for param in function.params]
            row["result"] = _result(function)
        case Lane.PUSH:
            row |= _push(function, places)
        case Lane.SUBMIT | Lane.ANSWER:
            row["kind"] = _kind(function)
        case _:
            assert_never(function.lane)
    return row


def _kind(function: Function) -> str:
    """Return the kind of the session that a function takes: "training" or "inference"."""
    is_training = getattr(function.params[0].type, "name", "") == "TrainingHandle"
    return "training" if is_training else "inference"


def _push(function: Function, places: dict[str, int]) -> Row:
    by_name = {param.name: param for param in function.params}
    metadata = by_name.get("metadata")
    return {
        "kind": _kind(function),
        "at": {
            "id": places["id"],
            "state": places["episode_state"],
            "reward": places["reward"],
            "features": places["features_ptr"],
            "given": places.get("actions_ptr"),
            "metadata": places.get("metadata_ptr"),
        },
        "metadata": None if metadata is None else _metric(metadata),
    }


def _metric(param: Param) -> Row:
    """Return the layout of an item of metadata."""
    assert isinstance(param.type, Slice)
    assert isinstance(param.type.item, Struct)
    name = param.type.item.fields[0].type
    size = struct_size(param.type.item)
    match name:
        case FixedStr(capacity=capacity):
            return {"size": size, "nameAt": 4, "nameSize": capacity, "hasLength": True}
        case Array(count=count):
            return {"size": size, "nameAt": 0, "nameSize": count, "hasLength": False}
        case _:
            raise ValueError(f"{param.name} has no name in its first field")


def _param(param: Param, places: dict[str, int]) -> Row:
    """Return a parameter with its kind, the place of its argument and that of its length."""
    name, kind = param.name, param.type
    row: Row = {"name": name}
    match kind:
        case Str(lossy=lossy):
            row |= {"kind": "shown" if lossy else "text", **_slice(name, places)}
        case Slice(item=item):
            row |= {"kind": "bytes", "size": size_of(item), **_slice(name, places)}
        case OutSlice(item=item):
            row |= {"kind": "room", "size": size_of(item), **_slice(name, places)}
        case Ref(struct=record):
            row |= {"kind": "record", "at": places[name], "size": struct_size(record)}
            row["fields"] = [[each.name, each.offset] for each in placed(record)]
        case Out(type=item):
            row |= {"kind": "room", "size": size_of(item), "at": places[name], "length": None}
        case Block(size=size):
            row |= {"kind": "bytes", "size": 1, "at": places[name], "length": places[size]}
        case OutBlock(size=size):
            row |= {"kind": "room", "size": 1, "at": places[name], "length": places[size]}
        case Scalar():
            row |= {"kind": _NUMBERS[kind], "at": places[name]}
        case Handle(scalar=scalar):
            row |= {"kind": _NUMBERS[scalar], "at": places[name]}
        case type():
            row |= {"kind": "enum", "at": places[name], "members": _members(kind)}
        case _:
            assert_never(kind)
    return row


def _slice(name: str, places: dict[str, int]) -> Row:
    return {"at": places[f"{name}_ptr"], "length": places[f"{name}_len"]}


def _members(enum: type[IntEnum]) -> Sequence[str | None]:
    """Return the names of an enum by their numbers, None for a number that is not used."""
    names = {member.value: member.name for member in enum}
    return [names.get(number) for number in range(max(names) + 1)]


def _result(function: Function) -> Row | None:
    """Return the type of a result that is written to the guest's memory, or None."""
    if not leaves_by_pointer(function):
        return None
    match function.returns:
        case Bytes() | Text():
            return {"kind": "vector"}
        case Struct() as record:
            fields = [
                [each.name, each.offset, _number(each.type)]
                for each in placed(record)
                if not isinstance(each.type, Pad | Array)
            ]
            return {"kind": "record", "size": struct_size(record), "fields": fields}
        case Scalar() | Handle() as kind:
            return {"kind": _number(kind), "size": size_of(kind)}
        case None:
            return None
        case kind:
            assert_never(kind)


def _number(kind: object) -> str:
    """Return the kind of a number in memory."""
    match kind:
        case Handle(scalar=scalar):
            return scalar.name
        case Scalar(name=name):
            return name
        case _:
            raise ValueError(f"{kind!r} is not a number")
