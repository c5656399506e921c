"""Size rules of operators that slide a window over images."""

from __future__ import annotations

from math import prod

from arkml.errors import ModelRejected
from arkml.policies.operators.call import Call, ElementType, Tensor, grows
from arkml.policies.operators.elementwise import floats_only

_MAX_SETTING = 1 << 12
"""The largest stride, dilation, padding and kernel size."""

_LINE = 7
"""Elements of a window that take as long to copy as it takes to begin a line of them."""


def convolution(call: Call) -> list[Tensor]:
    """
    Size Conv of images [batch, channels, *space] with filters and a bias, inputs 0 to 2.

    Filters: [filters, channels / group, *kernel]. Work: one multiply-add for each element of the
    result and of a filter. Steps: the elements of all windows, and `_LINE` for each line of
    windows. Scratch: the windows of one image, unrolled.
    """
    floats_only(call)
    tensor, weights = call.input(0), call.input(1)
    group = call.integer("group", 1)
    space = _space(tensor)
    if len(weights.shape) != len(tensor.shape) or group < 1:
        raise ModelRejected(f"weights {list(weights.shape)} for {list(tensor.shape)}")
    channels, filters = tensor.shape[1], weights.shape[0]
    if channels != weights.shape[1] * group or filters % group != 0:
        raise ModelRejected(f"{channels} channels, {filters} filters and {group} groups")
    kernel = weights.shape[2:]
    if (call.integers("kernel_shape") or kernel) != kernel:
        raise ModelRejected("kernel_shape is not the shape of the weights")
    bias = call.optional(2)
    if bias is not None and bias.shape != (filters,):
        raise ModelRejected(f"a bias {list(bias.shape)} for {filters} filters")
    out = _window(call, space, kernel)
    result = Tensor(tensor.kind, (tensor.shape[0], filters, *out))
    call.work += result.count * weights.shape[1] * prod(kernel)
    lines = tensor.shape[0] * channels * prod(kernel) * prod(out[:-1])
    call.steps += lines * (out[-1] + _LINE)
    call.scratch += tensor.kind.size * channels * prod(kernel) * prod(out)
    return [result]


def pool(call: Call) -> list[Tensor]:
    """
    Size MaxPool or AveragePool of images [batch, channels, *space], and the indices of MaxPool.

    Work: elements of the result times elements of the kernel.
    """
    floats_only(call)
    tensor = call.input(0)
    kernel = call.integers("kernel_shape")
    space = _space(tensor)
    if kernel is None or len(kernel) != len(space):
        raise ModelRejected(f"kernel_shape {kernel} for {list(tensor.shape)}")
    shape = (*tensor.shape[:2], *_window(call, space, kernel))
    result = Tensor(tensor.kind, shape)
    call.work += result.count * prod(kernel)
    return [result, Tensor(ElementType.INT64, shape)][: call.outputs]


def global_pool(call: Call) -> list[Tensor]:
    """Size a pooling of whole images: [batch, channels, 1, ...]. No other work."""
    floats_only(call)
    tensor = call.input(0)
    return [Tensor(tensor.kind, (*tensor.shape[:2], *(1 for _ in _space(tensor))))]


def _space(tensor: Tensor) -> tuple[int, ...]:
    if not 3 <= len(tensor.shape) <= 5 or 0 in tensor.shape:
        raise ModelRejected(f"a shape {list(tensor.shape)} is not a batch of images")
    if any(map(grows, tensor.shape[2:])):
        raise ModelRejected("a window over a batch of any size")
    return tensor.shape[2:]


def _window(call: Call, space: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, ...]:
    """Return the space of the output, by strides, dilations, pads, auto_pad and ceil_mode."""
    count = len(space)
    ones = (1,) * count
    strides = call.integers("strides") or ones
    dilations = call.integers("dilations") or ones
    pads = call.integers("pads") or (0,) * (2 * count)
    if not (len(strides) == len(dilations) == count and len(pads) == 2 * count):
        raise ModelRejected("strides, dilations and pads do not fit the input")
    if not all(1 <= setting <= _MAX_SETTING for setting in (*strides, *dilations, *kernel)):
        raise ModelRejected("a stride, dilation or kernel size is out of range")
    if not all(0 <= pad <= _MAX_SETTING for pad in pads):
        raise ModelRejected("a padding is out of range")
    extent = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    match call.attribute("auto_pad"):
        case b"SAME_UPPER" | b"SAME_LOWER":
            return tuple(-(-size // step) for size, step in zip(space, strides, strict=True))
        case b"VALID":
            pads = (0,) * (2 * count)
        case None | b"NOTSET":
            pass
        case other:
            raise ModelRejected(f"auto_pad {other!r}")
    up = call.integer("ceil_mode", 0) != 0
    out = []
    for axis, size in enumerate(space):
        room = size + pads[axis] + pads[axis + count] - extent[axis]
        if room < 0:
            raise ModelRejected(f"a window of {extent[axis]} over {size} elements")
        steps = -(-room // strides[axis]) if up else room // strides[axis]
        if up and steps * strides[axis] >= size + pads[axis]:
            steps -= 1  # a window that starts in the trailing padding does not count
        out.append(steps + 1)
    return tuple(out)
