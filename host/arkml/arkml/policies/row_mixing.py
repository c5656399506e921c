"""Nodes of a graph by which the results of a row depend on other rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arkml.errors import ModelRejected
from arkml.policies.operators.call import Call, checked_axis, grows
from arkml.policies.vetting import Vetted, opset, title
from arkml.policies.weights import attributes

if TYPE_CHECKING:
    import onnx

_WINDOWS = frozenset(["Conv", "MaxPool", "AveragePool", "InstanceNormalization"])
_RECURRENT = frozenset(["LSTM", "GRU"])
_BY_AXIS = {
    "Softmax": -1,
    "LogSoftmax": -1,
    "LpNormalization": -1,
    "LayerNormalization": -1,
    "Gather": 0,
    "GatherElements": 0,
}
"""Operators that read along an axis, with that which they have by default."""

_FLATTENING = frozenset(["Softmax", "LogSoftmax"])  # before version 13: the axes behind, too


def require_rows_apart(vetted: Vetted) -> None:
    """
    Raise ModelRejected for a node that reduces, sorts or normalizes over the rows of the batch.

    The rows are the axes that grow with the batch. A node that shuffles whole rows may be missed.
    """
    version = opset(vetted.model)
    for node in vetted.model.graph.node:
        inputs = [vetted.tensors.get(name) for name in node.input]
        call = Call(node.op_type, version, inputs, attributes(node), len(node.output))
        if _loses_rows(vetted, node) or _reads_along_rows(call):
            raise ModelRejected(f"{title(node)}: what it gives for a row depends on other rows")


def _loses_rows(vetted: Vetted, node: onnx.NodeProto) -> bool:
    """Return True for a node that reduces all rows to a result without rows."""
    if node.op_type == "Shape":
        return False
    tensors = vetted.tensors
    has_rows = any(_rows(tensors[name].shape) is not None for name in node.input if name)
    return has_rows and any(_rows(tensors[name].shape) is None for name in node.output if name)


def _reads_along_rows(call: Call) -> bool:
    """Return True for a node that reads along the axis of the rows of its first input."""
    tensor = call.optional(0)
    rows = None if tensor is None else _rows(tensor.shape)
    if tensor is None or rows is None:
        return False
    rank = len(tensor.shape)
    if call.op in _WINDOWS:
        return rows >= 2
    if call.op in _RECURRENT:
        return rows == 0
    if call.op == "CumSum":
        return checked_axis(call.known(1)[0], rank) == rows
    if call.op not in _BY_AXIS:
        return False
    is_flattening = call.op in _FLATTENING and call.version < 13
    axis = call.axis(rank, 1 if is_flattening else _BY_AXIS[call.op])
    return rows >= axis if is_flattening or call.op == "LayerNormalization" else rows == axis


def _rows(shape: tuple[int, ...]) -> int | None:
    """Return the axis that grows with the batch, if there is one."""
    return next((axis for axis, size in enumerate(shape) if grows(size)), None)
