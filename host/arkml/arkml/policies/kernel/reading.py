"""The translation of vetted ONNX graphs to the values of one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from arkml.errors import ModelRejected
from arkml.policies.kernel.graph import Constant, Given, NumberKind, Shape, Value, constant
from arkml.policies.kernel.translation import TRANSLATIONS, Node
from arkml.policies.operators.call import ROWS, Call, Tensor, grows
from arkml.policies.ports import Port
from arkml.policies.vetting import Vetted, opset, title
from arkml.policies.weights import attributes

if TYPE_CHECKING:
    import onnx

MOST_WORK = 1 << 24
"""Most multiply-adds of a row, by the estimate of vetting: some milliseconds of a processor."""

NOT_ONNX = (
    "not compiled to WebAssembly: the model is of NNEF, and only models of ONNX are;"
    ' hosts run it by backend="onnxruntime"'
)
"""The refusal of other models."""

_WITHOUT_TRANSLATION = frozenset({"Constant", "Shape"})


def outputs_of_row(vetted: Vetted, inputs: Sequence[Port], outputs: Sequence[Port]) -> list[Value]:
    """
    Return the outputs of a graph for one row, as values with as many elements as their ports.

    Raises ModelRejected for a graph that a kernel cannot compute; the message names all unsupported
    operators.
    """
    nodes = vetted.model.graph.node
    unknown = {node.op_type for node in nodes} - TRANSLATIONS.keys() - _WITHOUT_TRANSLATION
    if unknown:
        raise ModelRejected(_with_fallback(f"it has no {', '.join(sorted(unknown))}"))
    if (work := vetted.cost.fixed_work + vetted.cost.row_work) > MOST_WORK:
        raise ModelRejected(
            _with_fallback(f"a row takes {work} multiply-adds, {MOST_WORK} at most may be")
        )
    values = _weights(vetted)
    for port in inputs:
        shape = _of_one_row(vetted.tensors[port.name].shape)
        values[port.name] = Given(shape, NumberKind.FLOAT, port.name)
    version = opset(vetted.model)
    for node in nodes:
        try:
            _add(node, version, vetted, values)
        except (ModelRejected, IndexError, ValueError) as error:  # of numpy: sizes that do not fit
            raise ModelRejected(_with_fallback(f"{title(node)}: {error}")) from None
    try:
        return [_value(port.name, values) for port in outputs]
    except ModelRejected as error:
        raise ModelRejected(_with_fallback(str(error))) from None


def _value(name: str, values: Mapping[str, Value]) -> Value:
    """Return a value by its name. Raises ModelRejected for one that no translation makes."""
    if name not in values:
        raise ModelRejected(f"{name[:80]!r} is an output that its node is not compiled with")
    return values[name]


def _with_fallback(text: str) -> str:
    return f'not compiled to WebAssembly: {text}; hosts run the model by backend="onnxruntime"'


def _weights(vetted: Vetted) -> dict[str, Value]:
    from onnx import numpy_helper

    used = {name for node in vetted.model.graph.node for name in node.input}
    used |= {port.name for port in vetted.model.graph.output}
    values: dict[str, Value] = {}
    for weight in vetted.model.graph.initializer:
        if weight.name in used:
            values[weight.name] = _stored(numpy_helper.to_array(weight), weight.name)
    return values


def _stored(numbers: Any, name: str) -> Constant:
    try:
        return constant(numbers)
    except ModelRejected as error:
        raise ModelRejected(_with_fallback(f"weight {name[:80]!r}: {error}")) from None


def _add(node: onnx.NodeProto, version: int, vetted: Vetted, values: dict[str, Value]) -> None:
    """Add the outputs of a node."""
    tensors = [vetted.tensors[name] for name in node.output if name]
    known = [_known(tensor) for tensor in tensors]
    found: Sequence[Value | None] = known
    if any(one is None for one in known):
        found = _translated(node, version, vetted, values)
    for name, value in zip(node.output, found, strict=False):
        if not name or value is None:
            continue
        expected = _of_one_row(vetted.tensors[name].shape)
        if value.shape != expected:
            raise ModelRejected(
                f"its output is {list(value.shape)} for one row, not {list(expected)}"
            )
        values[name] = value


def _translated(
    node: onnx.NodeProto, version: int, vetted: Vetted, values: dict[str, Value]
) -> Sequence[Value]:
    if node.op_type == "Constant":
        return [_constant_of(node)]
    shapes = [_of_one_row(vetted.tensors[name].shape) for name in node.output if name]
    if node.op_type == "ConstantOfShape":
        return [_filled(node, shapes[0])]
    inputs = [vetted.tensors[name] if name else None for name in node.input]
    call = Call(node.op_type, version, inputs, attributes(node), len(node.output))
    given = [_value(name, values) if name else None for name in node.input]
    return TRANSLATIONS[node.op_type](Node(call, given, shapes))


def _constant_of(node: onnx.NodeProto) -> Constant:
    from onnx import numpy_helper

    (attribute,) = node.attribute
    match attribute.name:
        case "value":
            return constant(numpy_helper.to_array(attribute.t))
        case "value_float":
            return constant(np.float32(attribute.f))
        case _:
            return constant(np.array(attribute.floats, np.float32))


def _filled(node: onnx.NodeProto, shape: Shape) -> Constant:
    from onnx import numpy_helper

    fillers = [numpy_helper.to_array(one.t).ravel()[0] for one in node.attribute]
    filler = fillers[0] if fillers else np.float32(0)
    return constant(np.full(shape, filler, filler.dtype))


def _known(tensor: Tensor) -> Constant | None:
    """Return the whole numbers of a tensor that only shapes decide."""
    if tensor.value is None:
        return None
    numbers = [_size(number) for number in tensor.value]
    made = constant(np.array(numbers, np.int64).reshape(_of_one_row(tensor.shape)))
    is_truth = tensor.kind.text == "bool"
    return constant(made.numbers.astype(np.bool_)) if is_truth else made


def _of_one_row(shape: Sequence[int]) -> Shape:
    """Return the shape for one row of a tensor that was sized for many."""
    return tuple(map(_size, shape))


def _size(number: int) -> int:
    return number // ROWS if grows(number) else number
