"""Size rules of operators that pad, accumulate, choose, and look up elements."""

from __future__ import annotations

from arkml.errors import ModelRejected
from arkml.policies.operators.call import (
    FLOATS,
    Call,
    ElementType,
    Tensor,
    checked_axis,
    grows,
)

_NUMBERS = frozenset({ElementType.FLOAT, ElementType.DOUBLE, ElementType.INT32, ElementType.INT64})
_TRIANGLES = FLOATS | {ElementType.INT64, ElementType.BOOL}
_MAX_DEPTH = 1 << 20


def pad(call: Call) -> list[Tensor]:
    """
    Size Pad of input 0 by the sizes before and behind each axis, by default with zeros.

    The sizes are an attribute before opset 11, and input 1 since then; input 3 names the axes.
    """
    tensor = _numbers(call, {ElementType.BOOL})
    rank = len(tensor.shape)
    pads = call.integers("pads") if call.version < 11 else call.known(1)
    axes = tuple(range(rank)) if call.optional(3) is None else call.known(3)
    axes = tuple(checked_axis(axis, rank) for axis in axes)
    if pads is None or len(pads) != 2 * len(axes) or len(set(axes)) != len(axes):
        raise ModelRejected(f"pads {list(pads or ())[:16]} for the axes {list(axes)}")
    if min(pads, default=0) < 0:
        raise ModelRejected(f"pads {list(pads)[:16]} take elements away")
    mode = call.attribute("mode")
    shape = list(tensor.shape)
    for axis, before, behind in zip(axes, pads, pads[len(axes) :], strict=False):
        size = tensor.shape[axis]
        if (before or behind) and grows(size):
            raise ModelRejected("it adds rows to a batch of any size")
        most = {b"reflect": size - 1, b"edge": before + behind if size else 0, b"wrap": size}
        if mode not in (None, b"constant") and max(before, behind) > most.get(mode, 0):
            raise ModelRejected(f"pads {before} and {behind} of {size} elements, mode {mode!r}")
        shape[axis] = size + before + behind
    return [Tensor(tensor.kind, tuple(shape))]


def cumulative_sum(call: Call) -> list[Tensor]:
    """
    Size CumSum of input 0 along the axis in input 1: the shape of input 0.

    Steps: the length of the axis, for each row as if it were alone.
    """
    tensor = _numbers(call)
    axis = _one_known(call, 1)
    size = tensor.shape[checked_axis(axis, len(tensor.shape))]
    rows = max((each for each in tensor.shape if grows(each)), default=1)
    call.steps += size * (1 if grows(size) else rows)
    return [Tensor(tensor.kind, tensor.shape)]


def triangle(call: Call) -> list[Tensor]:
    """
    Size Trilu of the last two axes of input 0, from the diagonal in input 1: the input's shape.
    """
    tensor = call.input(0)
    if tensor.kind not in _TRIANGLES or len(tensor.shape) < 2:
        raise ModelRejected(f"Trilu on {tensor.kind.name} of shape {list(tensor.shape)}")
    diagonal = 0 if call.optional(1) is None else _one_known(call, 1)
    if abs(diagonal) > max(tensor.shape[-2:]):
        raise ModelRejected(f"the diagonal {diagonal} of a shape {list(tensor.shape)}")
    return [Tensor(tensor.kind, tensor.shape)]


def top(call: Call) -> list[Tensor]:
    """
    Size TopK of input 0 along `axis`: values and indices, as many as input 1 says.

    Work: the elements times the comparisons of each. NaN is replaced before: see `rewriting`.
    """
    if call.version < 11:
        raise ModelRejected("TopK is supported from opset 11 on")
    tensor = _numbers(call)
    axis = call.axis(len(tensor.shape), -1)
    size, count = tensor.shape[axis], _one_known(call, 1)
    if grows(size):
        raise ModelRejected("it takes some rows of a batch of any size")
    if not 0 < count <= size:
        raise ModelRejected(f"{count} of {size} elements")
    shape = (*tensor.shape[:axis], count, *tensor.shape[axis + 1 :])
    call.work += tensor.count * count.bit_length()
    call.scratch += 16 * size
    return [Tensor(tensor.kind, shape), Tensor(ElementType.INT64, shape)]


def one_hot(call: Call) -> list[Tensor]:
    """Size OneHot of the indices in input 0: one more axis, of the size in input 1."""
    indices, values = call.input(0), call.input(2)
    depth = _one_known(call, 1)
    if not 0 < depth <= _MAX_DEPTH:
        raise ModelRejected(f"a depth of {depth}, expected 1 to {_MAX_DEPTH}")
    if values.shape != (2,):
        raise ModelRejected(f"values of shape {list(values.shape)}, expected [2]")
    rank = len(indices.shape) + 1
    axis = call.axis(rank, -1)
    return [Tensor(values.kind, (*indices.shape[:axis], depth, *indices.shape[axis:]))]


def gather_elements(call: Call) -> list[Tensor]:
    """Size GatherElements from input 0 along `axis`: the shape of the indices in input 1."""
    tensor, indices = call.input(0), call.input(1)
    axis = call.axis(len(tensor.shape), 0)
    if indices.kind not in (ElementType.INT32, ElementType.INT64):
        raise ModelRejected(f"indices of {indices.kind.name}")
    if len(indices.shape) != len(tensor.shape) or any(
        index > size or grows(index) != grows(size)
        for place, (index, size) in enumerate(zip(indices.shape, tensor.shape, strict=True))
        if place != axis
    ):
        raise ModelRejected(f"indices {list(indices.shape)} of {list(tensor.shape)}")
    return [Tensor(tensor.kind, indices.shape)]


def is_special(call: Call) -> list[Tensor]:
    """Size IsNaN or IsInf of floats: bools."""
    tensor = call.input(0)
    if tensor.kind not in FLOATS:
        raise ModelRejected(f"{call.op} on {tensor.kind.name} is not allowed")
    return [Tensor(ElementType.BOOL, tensor.shape)]


def _numbers(call: Call, others: frozenset[ElementType] | set[ElementType] = frozenset()) -> Tensor:
    """Return input 0. Raises ModelRejected for another type than numbers and `others`."""
    tensor = call.input(0)
    if tensor.kind not in _NUMBERS | others:
        raise ModelRejected(f"{call.op} on {tensor.kind.name} is not allowed")
    return tensor


def _one_known(call: Call, index: int) -> int:
    """Return the one integer of an input. Raises ModelRejected if only a run can tell it."""
    value = call.known(index)
    if len(value) != 1 or grows(value[0]):
        raise ModelRejected(f"input {index} is not one number that is known")
    return value[0]
