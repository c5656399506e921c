"""Removal of the fixed batch size from models that treat every row alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_ELEMENTWISE = frozenset(
    {
        *("Abs", "Celu", "Clip", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish"),
        *("Identity", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Selu", "Sigmoid"),
        *("Softplus", "Softsign", "Sqrt", "Tanh", "ThresholdedRelu"),
        *("Add", "Div", "Max", "Mean", "Min", "Mul", "Pow", "Sub"),
    }
)


def fixed_batch(model: onnx.ModelProto) -> int | None:
    """Return the batch size that all inputs of the model share, or None if one leaves it open."""
    constants = {tensor.name for tensor in model.graph.initializer}
    sizes = {
        port.type.tensor_type.shape.dim[0].dim_value
        for port in model.graph.input
        if port.name not in constants and port.type.tensor_type.shape.dim
    }
    return sizes.pop() if len(sizes) == 1 and 0 not in sizes else None


def is_rowwise(model: onnx.ModelProto) -> bool:
    """Return True if every node is known to compute each row from that row alone."""
    shapes = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant":
            # The forms without a tensor are scalars and vectors, equal for every row.
            for item in node.attribute:
                if item.name == "value":
                    shapes[node.output[0]] = list(item.t.dims)
        elif len(node.input) == 1 and node.input[0] in shapes and node.op_type in _ELEMENTWISE:
            shapes[node.output[0]] = shapes[node.input[0]]
        elif not _is_rowwise(node, shapes):
            return False
    return True


def with_free_batch(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of the model that takes any number of rows."""
    import onnx

    free = onnx.ModelProto()
    free.CopyFrom(model)
    constants = {tensor.name for tensor in free.graph.initializer}
    del free.graph.value_info[:]
    for port in (*free.graph.input, *free.graph.output):
        if port.name not in constants and port.type.tensor_type.shape.dim:
            port.type.tensor_type.shape.dim[0].dim_param = "N"
    return free


def _is_rowwise(node: onnx.NodeProto, constants: dict[str, list[int]]) -> bool:
    fixed = [constants[name] for name in node.input if name in constants]
    if len(fixed) == len(node.input):
        return False  # a new constant, whose broadcasting is unknown here
    match node.op_type:
        case "Gemm":
            transposed = any(item.name == "transA" and item.i for item in node.attribute)
            weights = [constants.get(name) for name in node.input[1:]]
            return not transposed and None not in weights and all(map(_is_shared, fixed[1:]))
        case "MatMul":
            return node.input[0] not in constants and len(constants.get(node.input[1], [])) == 2
        case "Concat":
            return not fixed and any(
                item.name == "axis" and item.i in (-1, 1) for item in node.attribute
            )
        case operator:
            return operator in _ELEMENTWISE and all(map(_is_shared, fixed))


def _is_shared(shape: list[int]) -> bool:
    """Return True if a constant of this shape is equal for every row."""
    return len(shape) < 2 or (len(shape) == 2 and shape[0] == 1)
