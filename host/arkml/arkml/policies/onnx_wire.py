"""A check of the protobuf bytes of an ONNX file, before any parser builds objects from them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from arkml.base.file_kinds import ONNX, kind_of
from arkml.base.native_imports import import_onnx
from arkml.errors import ModelRejected

MAX_FIELDS = 250_000
"""Fields of a file. The two bytes of an empty message take some 200 in a parser."""

MAX_TEXT = 8 << 20
"""Bytes of names, texts and packed integers, which grow eightfold in a parser."""

_OUTSIDE = "weights in other files"
_FORBIDDEN = {
    "ModelProto": {
        "training_info": "training information",
        "functions": "functions",
        "configuration": "device configurations",
    },
    "GraphProto": {
        "sparse_initializer": "sparse weights",
        "quantization_annotation": "quantization annotations",
    },
    "NodeProto": {
        "overload": "overloaded operators",
        "device_configurations": "device configurations",
    },
    "AttributeProto": {
        "ref_attr_name": "attributes by reference",
        "g": "graphs inside of nodes",
        "graphs": "graphs inside of nodes",
        "sparse_tensor": "sparse tensors",
        "sparse_tensors": "sparse tensors",
        "tp": "types in attributes",
        "type_protos": "types in attributes",
    },
    "TensorProto": {
        "segment": "tensors in segments",
        "string_data": "strings in tensors",
        "external_data": _OUTSIDE,
        "uint64_data": "uint64 in tensors",
    },
    "TypeProto": {
        "sequence_type": "sequences",
        "map_type": "maps",
        "optional_type": "optional values",
        "sparse_tensor_type": "sparse tensors",
        "opaque_type": "opaque values",
    },
}
"""
Fields that policies do not need. Without them no message contains itself, but for a graph in a node
of the outer graph, whose own nodes have none: depth is bounded.
"""

_BULK = {"raw_data", "float_data", "double_data"}
_STRING = 9  # the type of a text in protobuf's own description of a message
_BYTES = 2  # the wire type of a field that says its length
_GRAPH, _NODE = 7, 1
_OUTPUT, _NAME, _OPERATOR = 2, 3, 4


class _Message:
    """A message type: the meaning of each of its field numbers."""

    __slots__ = ("bulk", "children", "forbidden", "known", "name", "texts")

    def __init__(self, name: str) -> None:
        self.name = name
        self.children: dict[int, _Message] = {}
        self.forbidden: dict[int, str] = {}
        self.known: set[int] = set()
        self.bulk: set[int] = set()
        self.texts: set[int] = set()


@cache
def _model_message(*, allow_external: bool) -> _Message:
    onnx = import_onnx()
    built: dict[tuple[str, bool], _Message] = {}

    def build(descriptor: Any, *, is_inner: bool = False) -> _Message:
        if (descriptor.name, is_inner) in built:
            return built[descriptor.name, is_inner]
        message = built[descriptor.name, is_inner] = _Message(descriptor.name)
        forbidden = _FORBIDDEN.get(descriptor.name, {})
        for field in descriptor.fields:
            is_branch = field.name == "g" and not is_inner
            if (
                field.name in forbidden
                and not is_branch
                and not (allow_external and field.name == "external_data")
            ):
                message.forbidden[field.number] = forbidden[field.name]
                continue
            message.known.add(field.number)
            if field.message_type is not None:
                message.children[field.number] = build(
                    field.message_type, is_inner=is_inner or is_branch
                )
            elif field.name in _BULK:
                message.bulk.add(field.number)
            elif field.type == _STRING:
                message.texts.add(field.number)
        return message

    return build(onnx.ModelProto.DESCRIPTOR)


def walk(data: bytes, *, allow_external: bool = False) -> None:
    """
    Raise ModelRejected for bytes that are not an ONNX model, or have forbidden fields.

    Fields that the installed `onnx` does not know are refused too, because onnxruntime may know
    them. `allow_external` accepts references to weights in other files.
    """
    if (kind := kind_of(data)) not in ("", ONNX):
        raise ModelRejected(f"not an ONNX model: it is {kind}")
    fields = text = 0
    todo = [(0, len(data), _model_message(allow_external=allow_external))]
    while todo:
        at, end, message = todo.pop()
        children, known, bulk, texts = message.children, message.known, message.bulk, message.texts
        for number, wire_type, start, stop in _fields(data, at, end):
            fields += 1
            if fields > MAX_FIELDS:
                raise ModelRejected(f"the file has more than {MAX_FIELDS} protobuf fields")
            if number not in known:
                raise _refusal(data, start, message, number)
            if number in children:
                if wire_type != _BYTES:
                    raise ModelRejected(f"not an ONNX model: field {number} of {message.name}")
                todo.append((start, stop, children[number]))
            elif wire_type == _BYTES and number not in bulk:
                text += stop - start
                if number in texts and not _is_text(data, start, stop):
                    raise ModelRejected(f"a text in a {message.name} is not UTF-8")
        if text > MAX_TEXT:
            raise ModelRejected(f"the file has more than {MAX_TEXT} bytes beside its weights")


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the number, the wire type, and the start and end of the content of each field."""
    while at < end:
        key = data[at]
        at += 1
        if key > 0x7F:
            key, at = _varint(data, at - 1, end)
        start = at
        match key & 7:
            case 2:
                length, start = _varint(data, at, end)
                at = start + length
            case 0:
                at = _varint(data, at, end)[1]
            case 1:
                at += 8
            case 5:
                at += 4
            case other:
                raise ModelRejected(
                    f"not an ONNX model: it begins with {data[:42]!r} (protobuf wire type {other})"
                )
        if at > end:
            raise ModelRejected("not an ONNX model, or cut off")
        yield key >> 3, key & 7, start, at


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ModelRejected("not an ONNX model: a number of more than 64 bits")
    raise ModelRejected("not an ONNX model, or cut off")


def _is_text(data: bytes, start: int, end: int) -> bool:
    try:
        data[start:end].decode()
    except UnicodeDecodeError:
        return False
    return True


def _refusal(data: bytes, at: int, message: _Message, number: int) -> ModelRejected:
    if number not in message.forbidden:
        return ModelRejected(f"not an ONNX model: field {number} of {message.name}")
    reason = f"{message.forbidden[number]} are not allowed"
    if message.forbidden[number] == _OUTSIDE:
        reason += (
            " in bytes: export with external_data=False, or make one file of them by `arkml pack`"
        )
    return ModelRejected(f"{_place(data, at)}{reason}")


def _place(data: bytes, at: int) -> str:
    """Return the node that holds byte `at`, as the beginning of a message, or an empty text."""
    for field, _, graph, graph_end in _fields(data, 0, len(data)):
        if field != _GRAPH or not graph <= at < graph_end:
            continue
        for inner, wire_type, start, end in _fields(data, graph, graph_end):
            if inner == _NODE and wire_type == _BYTES and start <= at < end:
                values = {number: data[a:b] for number, _, a, b in _fields(data, start, end)}
                name = values.get(_NAME) or values.get(_OUTPUT, b"")
                operator = values.get(_OPERATOR, b"")[:40].decode(errors="replace")
                return f"node {name[:80].decode(errors='replace')!r} ({operator}): "
    return ""
