"""A check that a model computes each row of a batch independently, by the nodes of its graph."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from arkml.errors import ModelRejected
from arkml.policies.operators.arrangement import slice_arguments
from arkml.policies.operators.call import ROWS, Call, Tensor, checked_axis, grows
from arkml.policies.operators.contraction import terms_of
from arkml.policies.operators.layers import GATES
from arkml.policies.vetting import Vetted, opset, title
from arkml.policies.weights import attributes

if TYPE_CHECKING:
    import onnx

_WINDOWS = frozenset(["Conv", "MaxPool", "AveragePool", "InstanceNormalization"])
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

_RESHAPING = frozenset(["Reshape", "Flatten", "Squeeze", "Unsqueeze"])
_MIXED = 0  # rounds of what has the rows in no order that can be told
_NO_DATA = {"ConstantOfShape": 0, **dict.fromkeys(("Reshape", "Expand", "Tile", "Slice"), 1)}
"""The first of the inputs that are sizes and places, not data."""


def require_rows_apart(vetted: Vetted) -> None:
    """
    Raise ModelRejected for a node that lets the results of a row depend on other rows.

    Such a node reduces, sorts, normalizes or moves the rows of the batch, or counts them. The rows
    are the axes that grow with the batch.
    """
    graph, tensors = vetted.model.graph, vetted.tensors
    version = opset(vetted.model)
    # Along the axis of the rows the whole batch comes so many times in a row: once in [rows * 8],
    # eight times in [8 * rows].
    rounds = {port.name: 1 for port in graph.input if _rows(tensors[port.name].shape) is not None}
    counts: set[str] = set()  # names of tensors that are computed from the number of rows
    outputs = {port.name for port in graph.output}
    for node in graph.node:
        inputs = [tensors.get(name) for name in node.input]
        call = Call(node.op_type, version, inputs, attributes(node), len(node.output))
        known = [rounds.get(name) for name in node.input]
        is_mixing = _loses_rows(vetted, node) or _reads_along_rows(call)
        for name in filter(None, node.output):
            found = _rounds(call, known, tensors[name])
            if found is not None:
                rounds[name] = found
            if _counts_rows(node, tensors[name], counts):
                counts.add(name)
            is_mixing |= found == _MIXED or (name in outputs and (found or 1) > 1)
            is_mixing |= name in outputs and name in counts
        if is_mixing:
            raise ModelRejected(f"{title(node)}: what it gives for a row depends on other rows")


def _rounds(call: Call, known: Sequence[int | None], result: Tensor) -> int | None:
    """
    Return how many times the batch comes along the axis of the rows of a result, `_MIXED` if mixed.

    None for a result that has no rows, or the same in each. known: the rounds of the inputs.
    """
    rows = _rows(result.shape)
    pairs = zip(call.inputs, known, strict=True)
    sources = [(tensor, each) for tensor, each in pairs if tensor is not None and each]
    if rows is None or not sources:
        return None
    tensor, first = sources[0]
    before = _rows(tensor.shape)
    if call.op in _RESHAPING:  # elements stay in their order, so the batch begins as often
        begins, most = first * prod(tensor.shape[:before]), result.shape[rows] // ROWS
        found, rest = divmod(begins, prod(result.shape[:rows]))
        return _MIXED if rest or found == 0 or most % found else found
    if call.op == "Concat" and call.axis(len(result.shape), 0) == rows:
        together = {each.shape[rows] // count for each, count in sources}
        is_whole = len(together) == 1 and len(sources) == len(call.inputs)
        return sum(count for _, count in sources) if is_whole else _MIXED
    if call.op == "Tile" and before is not None:
        return first * call.known(1)[before]
    return first if all(count == first for _, count in sources) else _MIXED


def _counts_rows(node: onnx.NodeProto, result: Tensor, counts: set[str]) -> bool:
    """Return True for a result that is computed from the number of rows."""
    data = node.input[: _NO_DATA.get(node.op_type)]
    if node.op_type != "Shape" and counts.isdisjoint(data):
        return False
    return result.value is None or any(map(grows, result.value))


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
    if call.op == "Einsum":
        return _sums_rows(call)
    if tensor is None or rows is None:
        return False
    rank = len(tensor.shape)
    if call.op in _WINDOWS:
        return rows >= 2
    if call.op in GATES:
        return rows == 0
    if call.op == "Trilu":
        return rows >= rank - 2
    if call.op == "CumSum":
        return checked_axis(call.known(1)[0], rank) == rows
    if call.op == "Slice":  # it takes all rows of an open batch, but from the last one on
        axes, _, _, steps = slice_arguments(call)
        return any(axis == rows and step < 0 for axis, step in zip(axes, steps, strict=True))
    if call.op == "MaxPool" and call.outputs > 1:
        return True  # its indices count the images before
    if call.op not in _BY_AXIS:
        return False
    is_flattening = call.op in _FLATTENING and call.version < 13
    axis = call.axis(rank, 1 if is_flattening else _BY_AXIS[call.op])
    return rows >= axis if is_flattening or call.op == "LayerNormalization" else rows == axis


def _sums_rows(call: Call) -> bool:
    """Return True for an Einsum whose result lacks the index of the rows of an input."""
    terms, result = terms_of(call)
    return any(
        grows(size) and index not in result
        for term, tensor in zip(terms, call.inputs, strict=True)
        if tensor is not None
        for index, size in zip(term, tensor.shape, strict=True)
    )


def _rows(shape: tuple[int, ...]) -> int | None:
    """Return the axis that grows with the batch, if there is one."""
    return next((axis for axis, size in enumerate(shape) if grows(size)), None)
