"""Size rules of operators that only move elements; their cost is reading and writing these."""

from __future__ import annotations

from math import prod

import numpy as np

from arkml.errors import ModelRejected
from arkml.policies.operators.call import (
    MAX_KNOWN,
    Call,
    ElementType,
    Tensor,
    broadcast,
    checked_axis,
    grows,
)


def reshape(call: Call) -> list[Tensor]:
    """Size Reshape of input 0 to the shape in input 1, with -1 and copied dimensions resolved."""
    tensor, wanted = call.input(0), call.known(1)
    keep_zeros = call.integer("allowzero", 0) != 0
    shape: list[int] = []
    for axis, size in enumerate(wanted):
        if size == 0 and not keep_zeros:
            if axis >= len(tensor.shape):
                raise ModelRejected(f"shape {list(wanted)} copies a dimension that is not there")
            size = tensor.shape[axis]
        shape.append(size)
    if shape.count(-1) == 1 and prod(shape) != 0:
        shape[shape.index(-1)] = tensor.count // -prod(shape)
    elif -1 in shape:
        raise ModelRejected(f"shape {list(wanted)} is ambiguous")
    if min(shape, default=1) < 0 or prod(shape) != tensor.count:
        raise ModelRejected(f"{list(tensor.shape)} does not fit into {list(wanted)}")
    return [Tensor(tensor.kind, tuple(shape), tensor.value)]


def flatten(call: Call) -> list[Tensor]:
    """Size Flatten of input 0 into a matrix, split before `axis`."""
    tensor = call.input(0)
    rank = len(tensor.shape)
    axis = call.integer("axis", 1)
    if not -rank <= axis <= rank:
        raise ModelRejected(f"axis {axis} of a tensor with {rank} dimensions")
    if axis < 0:
        axis += rank
    shape = (prod(tensor.shape[:axis]), prod(tensor.shape[axis:]))
    return [Tensor(tensor.kind, shape, tensor.value)]


def squeeze(call: Call) -> list[Tensor]:
    """Size Squeeze of input 0: without the given axes, or without all axes of size 1."""
    tensor = call.input(0)
    axes = call.axes(len(tensor.shape), 13)
    if axes is None:
        axes = tuple(axis for axis, size in enumerate(tensor.shape) if size == 1)
    if any(tensor.shape[axis] != 1 for axis in axes):
        raise ModelRejected(f"axes {list(axes)} of {list(tensor.shape)} are not all 1")
    shape = tuple(size for axis, size in enumerate(tensor.shape) if axis not in axes)
    return [Tensor(tensor.kind, shape, tensor.value)]


def unsqueeze(call: Call) -> list[Tensor]:
    """Size Unsqueeze of input 0: with axes of size 1 inserted."""
    tensor = call.input(0)
    count = call.integers("axes") if call.version < 13 else call.known(1)
    if count is None:
        raise ModelRejected("attribute axes is missing")
    rank = len(tensor.shape) + len(count)
    axes = {checked_axis(axis, rank) for axis in count}
    if len(axes) != len(count):
        raise ModelRejected(f"axes {list(count)} name one axis twice")
    sizes = iter(tensor.shape)
    shape = tuple(1 if axis in axes else next(sizes) for axis in range(rank))
    return [Tensor(tensor.kind, shape, tensor.value)]


def transpose(call: Call) -> list[Tensor]:
    """Size Transpose of input 0 by `perm`, by default with all axes reversed."""
    tensor = call.input(0)
    rank = len(tensor.shape)
    order = call.integers("perm") or tuple(reversed(range(rank)))
    if sorted(order) != list(range(rank)):
        raise ModelRejected(f"perm {list(order)} of a tensor with {rank} dimensions")
    value = tensor.value
    if value is not None and rank > 1:
        places = np.arange(len(value)).reshape(tensor.shape).transpose(order)
        value = tuple(value[place] for place in places.ravel().tolist())
    return [Tensor(tensor.kind, tuple(tensor.shape[axis] for axis in order), value)]


def concat(call: Call) -> list[Tensor]:
    """Size Concat of all inputs along `axis`; the values of short vectors are tracked."""
    tensors = [call.input(index) for index in range(len(call.inputs))]
    first = call.input(0)
    axis = call.axis(len(first.shape), 0)
    rest = first.shape[:axis] + first.shape[axis + 1 :]
    for tensor in tensors:
        shape = tensor.shape
        if len(shape) != len(first.shape) or shape[:axis] + shape[axis + 1 :] != rest:
            raise ModelRejected(f"{list(shape)} and {list(first.shape)} do not fit together")
    size = sum(tensor.shape[axis] for tensor in tensors)
    if grows(max(tensor.shape[axis] for tensor in tensors)) and not grows(size):
        raise ModelRejected("it adds rows to a batch of any size")
    value = None
    if len(first.shape) == 1 and size <= MAX_KNOWN:
        known = [tensor.value for tensor in tensors if tensor.value is not None]
        value = sum(known, ()) if len(known) == len(tensors) else None
    return [Tensor(first.kind, (*first.shape[:axis], size, *first.shape[axis + 1 :]), value)]


def split(call: Call) -> list[Tensor]:
    """Size Split of input 0 along `axis` into the sizes given, or into equal parts."""
    tensor = call.input(0)
    axis = call.axis(len(tensor.shape), 0)
    size = tensor.shape[axis]
    sizes = call.integers("split") if call.version < 13 else None
    if call.version >= 13 and call.optional(1) is not None:
        sizes = call.known(1)
    if sizes is None:
        step = -(-size // call.outputs)
        sizes = tuple(min(step, max(0, size - step * index)) for index in range(call.outputs))
    if len(sizes) != call.outputs or min(sizes) < 0 or sum(sizes) != size:
        raise ModelRejected(f"{size} cannot be split into {list(sizes)}")
    if grows(size) and len(sizes) > 1:
        raise ModelRejected("it takes some rows of a batch of any size")
    before, after = tensor.shape[:axis], tensor.shape[axis + 1 :]
    return [Tensor(tensor.kind, (*before, size, *after)) for size in sizes]


def slice_(call: Call) -> list[Tensor]:
    """Size Slice of input 0 by starts, ends, axes and steps; values of vectors are tracked."""
    tensor = call.input(0)
    shape = list(tensor.shape)
    value = tensor.value
    for axis, start, end, step in zip(*slice_arguments(call), strict=True):
        # Python would count an end this far below zero from the back.
        stop = None if end in _OPEN_ENDS or (step < 0 and end < -shape[axis]) else end
        # onnxruntime takes a start this far below zero for the first element, Python for none.
        begin = max(start, -shape[axis]) if step < 0 else start
        chosen = range(shape[axis])[begin:stop:step]
        if grows(shape[axis]) and len(chosen) != shape[axis]:
            raise ModelRejected("it takes some rows of a batch of any size")
        if value is not None:
            places = np.arange(len(value)).reshape(shape).take(chosen, axis)
            value = tuple(value[place] for place in places.ravel().tolist())
        shape[axis] = len(chosen)
    return [Tensor(tensor.kind, tuple(shape), value)]


_OPEN_ENDS = frozenset({(1 << 31) - 1, (1 << 63) - 1})
"""Ends that onnxruntime takes for the last element, and for the first one if the step is < 0."""

_Integers = tuple[int, ...]


def slice_arguments(call: Call) -> tuple[_Integers, _Integers, _Integers, _Integers]:
    """Return the axes that a Slice names, and the start, end and step for each."""
    axes: _Integers | None
    if call.version < 10:
        starts, ends = call.integers("starts"), call.integers("ends")
        axes, steps = call.integers("axes"), None
        if starts is None or ends is None:
            raise ModelRejected("attribute starts or ends is missing")
    else:
        starts, ends = call.known(1), call.known(2)
        axes = None if call.optional(3) is None else call.known(3)
        steps = None if call.optional(4) is None else call.known(4)
    axes = axes if axes is not None else tuple(range(len(starts)))
    steps = steps if steps is not None else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise ModelRejected("starts, ends, axes and steps do not fit together")
    named = tuple(checked_axis(axis, len(call.input(0).shape)) for axis in axes)
    if len(set(named)) != len(named):
        raise ModelRejected(f"axes {list(axes)} name one axis twice")
    return named, starts, ends, steps


def gather(call: Call) -> list[Tensor]:
    """Size Gather from input 0 along `axis` at the indices of input 1; values are tracked."""
    tensor, indices = call.input(0), call.input(1)
    axis = call.axis(len(tensor.shape), 0)
    shape = (*tensor.shape[:axis], *indices.shape, *tensor.shape[axis + 1 :])
    value = None
    if tensor.value is not None and indices.value is not None and len(tensor.shape) == 1:
        size = len(tensor.value)
        if any(not -size <= index < size for index in indices.value):
            raise ModelRejected(f"indices {list(indices.value)} of {size} elements")
        value = tuple(tensor.value[index] for index in indices.value)
    return [Tensor(tensor.kind, shape, value)]


def shape_of(call: Call) -> list[Tensor]:
    """Size Shape of input 0, from `start` to `end`, and track its values."""
    start = call.integer("start", 0)
    end = None if call.attribute("end") is None else call.integer("end", 0)
    shape = call.input(0).shape[start:end]
    return [Tensor(ElementType.INT64, (len(shape),), shape)]


def expand(call: Call) -> list[Tensor]:
    """Size Expand of input 0 to the shape in input 1, which broadcasts with its own."""
    tensor, wanted = call.input(0), call.known(1)
    if min(wanted, default=1) < 0:
        raise ModelRejected(f"shape {list(wanted)} is negative")
    shape = broadcast(tensor.shape, wanted)
    value = tensor.value
    if value is not None and shape != tensor.shape:
        size = prod(shape)
        value = value * size if len(value) == 1 and size <= MAX_KNOWN else None
    return [Tensor(tensor.kind, shape, value)]


def tile(call: Call) -> list[Tensor]:
    """Size Tile of input 0, repeated along each axis by the numbers in input 1."""
    tensor, repeats = call.input(0), call.known(1)
    if len(repeats) != len(tensor.shape) or min(repeats, default=1) < 0:
        raise ModelRejected(f"repeats {list(repeats)} of a shape {list(tensor.shape)}")
    shape = tuple(size * count for size, count in zip(tensor.shape, repeats, strict=True))
    return [Tensor(tensor.kind, shape)]


def constant_of_shape(call: Call) -> list[Tensor]:
    """Size ConstantOfShape: the shape in input 0, filled with attribute `value` or 0."""
    shape = call.known(0)
    if min(shape, default=1) < 0:
        raise ModelRejected(f"shape {list(shape)} is negative")
    filler = call.attribute("value")
    if filler is None:
        return [Tensor(ElementType.FLOAT, shape)]
    if not isinstance(filler, Tensor) or filler.count != 1:
        raise ModelRejected("attribute value is not one element")
    size = prod(shape)
    value = filler.value * size if filler.value is not None and size <= MAX_KNOWN else None
    return [Tensor(filler.kind, shape, value)]


def constant(call: Call) -> list[Tensor]:
    """Size a Constant, and track its values, from the one attribute that holds them."""
    tensor = call.attribute("value")
    if isinstance(tensor, Tensor):
        return [tensor]
    if isinstance(call.attribute("value_float"), float):
        return [Tensor(ElementType.FLOAT, (), stored=True)]
    floats = call.attribute("value_floats")
    if isinstance(floats, tuple):
        return [Tensor(ElementType.FLOAT, (len(floats),), stored=True)]
    if call.attribute("value_int") is not None:
        return [Tensor(ElementType.INT64, (), (call.integer("value_int", 0),), stored=True)]
    integers = call.integers("value_ints")
    if integers is None:
        raise ModelRejected("a Constant must be a tensor or numbers")
    value = integers if len(integers) <= MAX_KNOWN else None
    return [Tensor(ElementType.INT64, (len(integers),), value, stored=True)]
