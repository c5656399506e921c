"""Sizes, offsets and wasm arguments, derived from a table and never written by hand."""

from __future__ import annotations

import struct as binary
from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from arkml.abi.schema import (
    BOOL,
    F64,
    U8,
    U32,
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
from arkml.errors import InvalidArguments

if TYPE_CHECKING:
    import numpy as np

POINTER = U32
"""The scalar that carries a guest address."""


class Slot(NamedTuple):
    """One wasm argument: its name and its type."""

    name: str
    wasm: str


class Placed(NamedTuple):
    """A field of a struct and its offset in bytes."""

    name: str
    type: FieldType
    offset: int


@cache
def slots(function: Function) -> tuple[Slot, ...]:
    """
    Return the wasm arguments of a function of the tables.

    A result that is written to guest memory adds a pointer as the last argument.
    """
    lowered = [slot for param in function.params for slot in lower(param)]
    if leaves_by_pointer(function):
        lowered.append(Slot(output_name(function), POINTER.wasm))
    return tuple(lowered)


def leaves_by_pointer(function: Function) -> bool:
    """Return whether a function's result is written to guest memory, not returned by wasm."""
    return function.returns is not None and function.outcome is not Outcome.VALUE


def output_name(function: Function) -> str:
    """Return the name of the last pointer of a function that writes its result to guest memory."""
    match function.returns:
        case Bytes() | Text():
            return "__ark_byte_size"
        case _:
            return "__ark_ffi_output"


def results(function: Function) -> list[str]:
    """Return the types of the wasm results of a function."""
    match function.outcome:
        case Outcome.VALUE if function.returns is F64:
            return [F64.wasm]
        case Outcome.CODE | Outcome.VALUE:
            return [U32.wasm]
        case Outcome.NONE | Outcome.NEVER:
            return []
        case _:
            assert_never(function.outcome)


def lower(param: Param) -> list[Slot]:
    """Return the wasm arguments of one parameter: two for text, such as `name_ptr`, `name_len`."""
    match param.type:
        case Str() | Slice() | OutSlice():
            return [Slot(f"{param.name}_ptr", POINTER.wasm), Slot(f"{param.name}_len", U32.wasm)]
        case Ref() | Out() | Block() | OutBlock():
            return [Slot(param.name, POINTER.wasm)]
        case Scalar() | Handle() | type() as kind:
            return [Slot(param.name, scalar_of(kind).wasm)]
        case _:
            assert_never(param.type)


def scalar_of(kind: Scalar | Handle | type[IntEnum]) -> Scalar:
    """Return the scalar that carries `kind` across the boundary."""
    match kind:
        case Scalar():
            return kind
        case Handle(scalar=scalar):
            return scalar
        case type():
            return U32
        case _:
            assert_never(kind)


def size_of(kind: FieldType) -> int:
    """Return the number of bytes that `kind` takes in memory."""
    match kind:
        case Scalar(size=size) | Pad(size=size):
            return size
        case Handle(scalar=scalar):
            return scalar.size
        case FixedStr(capacity=capacity):
            return U32.size + capacity
        case Array(item=item, count=count):
            return item.size * count
        case Struct():
            return struct_size(kind)
        case type():
            return U32.size
        case _:
            assert_never(kind)


def align_of(kind: FieldType) -> int:
    """Return the alignment of `kind` in bytes: its offset is a multiple of it."""
    match kind:
        case Scalar(size=size) | Array(item=Scalar(size=size)) | Handle(scalar=Scalar(size=size)):
            return size
        case Pad():
            return U8.size
        case Struct():
            return struct_align(kind)
        case FixedStr() | type():
            return U32.size
        case _:
            assert_never(kind)


@cache
def placed(struct: Struct) -> tuple[Placed, ...]:
    """Return each field with its offset. Raises ValueError for a gap that no `Pad` fills."""
    found: list[Placed] = []
    offset = 0
    for field in struct.fields:
        if offset % align_of(field.type):
            raise ValueError(f"{struct.name}.{field.name} at {offset} needs a Pad before it")
        found.append(Placed(field.name, field.type, offset))
        offset += size_of(field.type)
    if offset % struct_align(struct):
        raise ValueError(f"{struct.name} ends at {offset} and needs a Pad at its end")
    return tuple(found)


def struct_align(struct: Struct) -> int:
    """Return the alignment in bytes that a guest's compiler gives the struct."""
    return max(align_of(field.type) for field in struct.fields)


def struct_size(struct: Struct) -> int:
    """Return the number of bytes that a struct takes in memory."""
    last = placed(struct)[-1]
    return last.offset + size_of(last.type)


def dtype(struct: Struct) -> np.dtype[Any]:
    """Return the struct as a numpy dtype; a FixedStr is a nested `length` and `bytes`."""
    import numpy as np  # most readers of a table need no numpy

    def of(kind: FieldType) -> Any:
        match kind:
            case Scalar() | Handle() | type():
                return scalar_of(kind).dtype
            case FixedStr(capacity=capacity):
                return np.dtype([("length", U32.dtype), ("bytes", U8.dtype, (capacity,))])
            case Array(item=item, count=count):
                return (item.dtype, (count,))
            case Pad(size=size):
                return (U8.dtype, (size,))
            case Struct():
                return dtype(kind)
            case _:
                assert_never(kind)

    fields = placed(struct)
    return np.dtype(
        {
            "names": [field.name for field in fields],
            "formats": [of(field.type) for field in fields],
            "offsets": [field.offset for field in fields],
            "itemsize": struct_size(struct),
        }
    )


def pack(struct: Struct, values: Mapping[str, Any]) -> bytes:
    """
    Lay out `values`, one for each field except padding, as the bytes of the struct.

    A str that is too long for its field is cut between two characters. Raises ValueError for
    missing or unknown fields.
    """
    names = {field.name for field in struct.fields if not isinstance(field.type, Pad)}
    if names != set(values):
        raise ValueError(f"{struct.name} has the fields {sorted(names)}, not {sorted(values)}")
    return b"".join(_packed(field.type, values.get(field.name)) for field in struct.fields)


def _packed(kind: FieldType, value: Any) -> bytes:
    match kind:
        case Scalar() | Handle() | type():
            return binary.pack(_code(scalar_of(kind)), value)
        case FixedStr(capacity=capacity):
            text = cut(value, capacity)
            return binary.pack("<I", len(text)) + text.ljust(capacity, b"\0")
        case Array(item=item, count=count) if item is U8:
            return cut(value, count).ljust(count, b"\0")
        case Array(item=item, count=count):
            padding = [0] * (count - len(value))
            return binary.pack(f"<{count}{_code(item)[1:]}", *value, *padding)
        case Pad(size=size):
            return bytes(size)
        case Struct():
            return pack(kind, value)
        case _:
            assert_never(kind)


def cut(text: str | bytes, capacity: int) -> bytes:
    """Return the UTF-8 of `text`, cut between two characters to at most `capacity` bytes."""
    data = text.encode() if isinstance(text, str) else bytes(text)
    if len(data) <= capacity:
        return data
    end = capacity
    while end and data[end] & 0xC0 == 0x80:  # inside a character
        end -= 1
    return data[:end]


def unpack(struct: Struct, data: bytes) -> dict[str, Any]:
    """
    Return the fields of a struct, except padding, by name.

    A guest may write anything: a FixedStr that claims more than its capacity is read up to its
    capacity, and invalid UTF-8 is replaced. Raises InvalidArguments for an unknown enum number.
    """
    if len(data) != struct_size(struct):
        raise ValueError(f"{struct.name} has {struct_size(struct)} bytes, not {len(data)}")
    return {
        field.name: _unpacked(field.type, data[field.offset : field.offset + size_of(field.type)])
        for field in placed(struct)
        if not isinstance(field.type, Pad)
    }


def _unpacked(kind: FieldType, data: bytes) -> Any:
    match kind:
        case Scalar() | Handle():
            (value,) = binary.unpack(_code(scalar_of(kind)), data)
            return value
        case FixedStr(capacity=capacity):
            (length,) = binary.unpack_from("<I", data)
            return data[U32.size : U32.size + min(length, capacity)].decode(errors="replace")
        case Array(item=item) if item is U8:
            return data
        case Array(item=item, count=count):
            return list(binary.unpack(f"<{count}{_code(item)[1:]}", data))
        case Pad():
            return data
        case Struct():
            return unpack(kind, data)
        case type():
            return member(kind, int.from_bytes(data, "little"))
        case _:
            assert_never(kind)


def member(enum: type[IntEnum], number: int) -> IntEnum:
    """Return the member with this number. Raises InvalidArguments if there is none."""
    try:
        return enum(number)
    except ValueError:
        raise InvalidArguments(f"{number} is not a number of {enum.__name__}") from None


def _code(scalar: Scalar) -> str:
    """Return the code of a scalar for Python's `struct` module, such as `<I` for a u32."""
    if scalar is BOOL:
        return "<?"
    return "<" + {"<u1": "B", "<u4": "I", "<u8": "Q", "<i8": "q", "<f4": "f"}[scalar.dtype]
