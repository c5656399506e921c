"""The protobuf bytes of an ONNX file, walked before any parser builds objects from them."""

from __future__ import annotations

from functools import cache
from typing import Any

from arkml.errors import ModelRejected

MAX_FIELDS = 250_000
"""Two bytes of an empty message become some 200 in a parser."""

MAX_TEXT = 8 << 20
"""Bytes of names, texts and packed integers; the integers grow eightfold in a parser."""

_FORBIDDEN = {
    "ModelProto": {"training_info", "functions", "configuration"},
    "GraphProto": {"sparse_initializer", "quantization_annotation"},
    "NodeProto": {"overload", "device_configurations"},
    "AttributeProto": {
        "ref_attr_name",
        "g",
        "graphs",
        "sparse_tensor",
        "sparse_tensors",
        "tp",
        "type_protos",
    },
    "TensorProto": {"segment", "string_data", "external_data", "uint64_data"},
    "TypeProto": {
        "sequence_type",
        "map_type",
        "optional_type",
        "sparse_tensor_type",
        "opaque_type",
    },
}
"""Fields no policy needs. Without them no message contains itself, so the depth has an end."""

_BULK = {"raw_data", "float_data", "double_data"}

_BYTES = 2  # the wire type of a field that says its length


class _Message:
    """One message type: what each of its field numbers is."""

    __slots__ = ("bulk", "children", "forbidden", "known", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.children: dict[int, _Message] = {}
        self.forbidden: dict[int, str] = {}
        self.known: set[int] = set()
        self.bulk: set[int] = set()

    def refuse(self, number: int) -> ModelRejected:
        if number in self.forbidden:
            return ModelRejected(f"a policy may not have {self.forbidden[number]} ({self.name})")
        return ModelRejected(f"not an ONNX model: {self.name} has no field {number}")

    def cut_off(self) -> ModelRejected:
        return ModelRejected(f"the file is cut off inside a {self.name}")


@cache
def _model_message(*, allow_external: bool) -> _Message:
    import onnx

    allowed = {"external_data"} if allow_external else set()
    built: dict[str, _Message] = {}

    def build(descriptor: Any) -> _Message:
        if descriptor.name in built:
            return built[descriptor.name]
        message = built[descriptor.name] = _Message(descriptor.name)
        for field in descriptor.fields:
            if field.name in _FORBIDDEN.get(descriptor.name, set()) - allowed:
                message.forbidden[field.number] = field.name
                continue
            message.known.add(field.number)
            if field.message_type is not None:
                message.children[field.number] = build(field.message_type)
            elif field.name in _BULK:
                message.bulk.add(field.number)
        return message

    return build(onnx.ModelProto.DESCRIPTOR)


def walk(data: bytes, *, allow_external: bool = False) -> None:
    """
    Refuse bytes that are not an ONNX model, or hold what an untrusted one may not contain.

    Fields that the installed `onnx` does not know are refused too: onnxruntime may know them.
    `allow_external` lets references to weights in other files pass.
    """
    fields = text = 0
    todo = [(0, len(data), _model_message(allow_external=allow_external))]
    while todo:
        at, end, message = todo.pop()
        children, known, bulk = message.children, message.known, message.bulk
        while at < end:
            fields += 1
            if fields > MAX_FIELDS:
                raise ModelRejected(f"the file has more than {MAX_FIELDS} protobuf fields")
            key = data[at]
            at += 1
            if key > 0x7F:
                key, at = _varint(data, at - 1, end, message)
            number = key >> 3
            if number not in known:
                raise message.refuse(number)
            if key & 7 != _BYTES:
                at = _past_number(data, at, end, message, key)
                continue
            length, at = _varint(data, at, end, message)
            if length > end - at:
                raise message.cut_off()
            if number in children:
                todo.append((at, at + length, children[number]))
            elif number not in bulk:
                text += length
            at += length
        if text > MAX_TEXT:
            raise ModelRejected(f"the file has more than {MAX_TEXT} bytes beside its weights")


def _past_number(data: bytes, at: int, end: int, message: _Message, key: int) -> int:
    """Returns where the field after this one, which is not length-delimited, starts."""
    number, wire_type = key >> 3, key & 7
    if number in message.children:
        raise ModelRejected(f"not an ONNX model: field {number} of {message.name} is a number")
    match wire_type:
        case 0:
            return _varint(data, at, end, message)[1]
        case 1:
            at += 8
        case 5:
            at += 4
        case _:
            raise ModelRejected(f"not an ONNX model: wire type {wire_type} in {message.name}")
    if at > end:
        raise message.cut_off()
    return at


def _varint(data: bytes, at: int, end: int, message: _Message) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ModelRejected(f"not an ONNX model: a number in a {message.name} has no end")
    raise message.cut_off()
