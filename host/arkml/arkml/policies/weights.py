"""Weights, constants and attributes in a model file, checked against their declared sizes."""

from __future__ import annotations

from math import prod
from struct import unpack
from typing import Any

from arkml.errors import ModelRejected
from arkml.policies.operators.call import MAX_KNOWN, MAX_RANK, ElementType, Tensor, checked_type

MAX_ELEMENTS = 1 << 28

_FIELDS = {
    ElementType.FLOAT: "float_data",
    ElementType.INT32: "int32_data",
    ElementType.INT64: "int64_data",
    ElementType.BOOL: "int32_data",
    ElementType.FLOAT16: "int32_data",
    ElementType.DOUBLE: "double_data",
}

_FORMATS = {ElementType.INT32: "i", ElementType.INT64: "q", ElementType.BOOL: "?"}


def stored(tensor: Any) -> Tensor:
    """Return an `onnx.TensorProto` as a `Tensor`. Raises ModelRejected for contradictory sizes."""
    if tensor.data_location != 0:
        raise ModelRejected("its data lies in another file")
    kind = checked_type(tensor.data_type)
    shape = tuple(tensor.dims)
    if len(shape) > MAX_RANK or min(shape, default=0) < 0 or prod(shape) > MAX_ELEMENTS:
        raise ModelRejected(f"its shape {list(shape[:MAX_RANK])} is not allowed")
    count = prod(shape)
    raw = tensor.raw_data
    lists = {name: len(getattr(tensor, name)) for name in set(_FIELDS.values())}
    filled = {name: length for name, length in lists.items() if length}
    if raw:
        if filled or len(raw) != count * kind.size:
            raise ModelRejected(f"{len(raw)} bytes for {count} elements of {kind.name}")
    elif filled != ({_FIELDS[kind]: count} if count else {}):
        raise ModelRejected(f"{filled or 'no data'} for {count} elements of {kind.name}")
    return Tensor(kind, shape, _value(tensor, kind, count), stored=True)


def _value(tensor: Any, kind: ElementType, count: int) -> tuple[int, ...] | None:
    if kind not in _FORMATS or count > MAX_KNOWN:
        return None
    if tensor.raw_data:
        return tuple(map(int, unpack(f"<{count}{_FORMATS[kind]}", tensor.raw_data)))
    return tuple(getattr(tensor, _FIELDS[kind]))


def attributes(node: Any) -> dict[str, Any]:
    """Return a node's attributes as plain values, tensors as `Tensor`, lists as tuples."""
    values: dict[str, Any] = {}
    for attribute in node.attribute:
        if attribute.name in values:
            raise ModelRejected(f"two attributes are named {attribute.name[:80]!r}")
        match attribute.type:
            case 1:
                value: Any = attribute.f
            case 2:
                value = attribute.i
            case 3:
                value = attribute.s
            case 4:
                value = stored(attribute.t)
            case 6:
                value = tuple(attribute.floats)
            case 7:
                value = tuple(attribute.ints)
            case 8:
                value = tuple(attribute.strings)
            case other:
                raise ModelRejected(f"attribute {attribute.name[:80]!r} has the type {other}")
        values[attribute.name] = value
    return values
