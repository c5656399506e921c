"""The translation of the ONNX operators that a kernel supports to values of one row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import TypeAlias

import numpy as np

from arkml.errors import ModelRejected
from arkml.policies.kernel.graph import (
    ZERO,
    Constant,
    NumberKind,
    Picked,
    Places,
    Value,
    constant,
    expanded,
    highest_place,
    joined,
    moved,
    number,
    places_of,
    pointwise,
    product,
    reduced,
    require_places,
    reshaped,
    transposed,
)
from arkml.policies.operators.call import Call

Translate: TypeAlias = "Callable[[Node], Sequence[Value]]"
"""Returns the outputs of a node. Raises ModelRejected for what a kernel cannot do."""

_COMPARED = {"Equal": "eq", "Greater": "gt", "GreaterOrEqual": "ge", "Less": "lt",
             "LessOrEqual": "le"}  # fmt: skip
_CAST = {1: NumberKind.FLOAT, 6: NumberKind.INTEGER, 7: NumberKind.INTEGER, 9: NumberKind.BOOLEAN}
_WORDS = {NumberKind.FLOAT: "float", NumberKind.INTEGER: "whole", NumberKind.BOOLEAN: "bool"}
_POWERS = {2.0: "square", 3.0: "cube", 0.5: "sqrt", -1.0: "reciprocal"}
_MOST_STEPS = 64  # of a recurrent operator, which are written one after another


class Node:
    """An ONNX node in translation: its attributes, its inputs as values, its outputs' shapes."""

    def __init__(
        self, call: Call, inputs: Sequence[Value | None], shapes: Sequence[tuple[int, ...]]
    ) -> None:
        self.call = call
        self._inputs = inputs
        self.shapes = shapes

    @property
    def inputs(self) -> list[Value]:
        """The inputs that are not missing, as values."""
        return [one for one in self._inputs if one is not None]

    def input(self, index: int) -> Value:
        """Return input `index` as a value. Raises ModelRejected if it is missing."""
        found = self.optional(index)
        if found is None:
            raise ModelRejected(f"input {index} is missing")
        return found

    def optional(self, index: int) -> Value | None:
        """Return input `index` as a value, or None if it is missing."""
        return self._inputs[index] if index < len(self._inputs) else None

    def floats(self) -> list[Value]:
        """Return the inputs that are not missing. Raises ModelRejected unless they are floats."""
        for one in self.inputs:
            if one.kind is not NumberKind.FLOAT:
                raise ModelRejected(f"it computes with {one.kind.value} numbers")
        return self.inputs

    def float(self, name: str, default: float) -> float:
        """Return a float attribute of the node, or its default."""
        value = self.call.attribute(name)
        return default if value is None else float(value)


def _numbers(value: Value | None, what: str) -> Constant:
    if not isinstance(value, Constant):
        raise ModelRejected(f"{what} is not in the file")
    return value


def _elementwise(operation: str, node: Node) -> list[Value]:
    return [pointwise(operation, *node.floats())]


def _folded(operation: str, node: Node) -> list[Value]:
    """Combine any number of inputs, from the first on."""
    first, *others = node.floats()
    for one in others:
        first = pointwise(operation, first, one)
    return [first]


def _mean(node: Node) -> list[Value]:
    (total,) = _folded("add", node)
    return [pointwise("div", total, number(len(node.inputs)))]


def _compared(node: Node) -> list[Value]:
    left, right = node.input(0), node.input(1)
    operation = _COMPARED[node.call.op]
    if left.kind is not NumberKind.FLOAT:
        operation = f"whole {operation}"
    return [pointwise(operation, left, right, kind=NumberKind.BOOLEAN)]


def _logic(operation: str, node: Node) -> list[Value]:
    return [pointwise(operation, *node.inputs, kind=NumberKind.BOOLEAN)]


def _where(node: Node) -> list[Value]:
    return [pointwise("where", *node.inputs, kind=node.input(1).kind)]


def _cast(node: Node) -> list[Value]:
    source, kind = node.input(0), _CAST.get(node.call.integer("to", 0))
    if kind is source.kind:
        return [source]
    if kind is None or (kind is NumberKind.INTEGER and source.kind is NumberKind.FLOAT):
        raise ModelRejected("it casts to whole numbers, or to float16 or float64")
    return [pointwise(f"{_WORDS[kind]} of {_WORDS[source.kind]}", source, kind=kind)]


def _clip(node: Node) -> list[Value]:
    source = node.floats()[0]
    low, high = node.optional(1), node.optional(2)
    if node.call.version < 11:
        low = number(node.float("min", -3.4028234663852886e38))
        high = number(node.float("max", 3.4028234663852886e38))
    if low is not None:
        source = pointwise("max", source, low)
    return [source if high is None else pointwise("min", source, high)]


def _power(node: Node) -> list[Value]:
    source, exponent = node.floats()
    if not isinstance(exponent, Constant) or exponent.count != 1:
        raise ModelRejected("its exponent is not one number of the file")
    power = float(exponent.numbers.ravel()[0])
    if power == 1.0:
        return [source]
    if power not in _POWERS:
        raise ModelRejected(f"its exponent is {power:g}, and not one of -1, 0.5, 1, 2 and 3")
    return [expanded(pointwise(_POWERS[power], source), node.shapes[0])]


def _by_sign(source: Value, negative: Value) -> Value:
    """Return a source where it is not negative, else another value."""
    return pointwise("where", pointwise("ge", source, number(0.0), kind=NumberKind.BOOLEAN), source,
                     negative)  # fmt: skip


def _leaky(node: Node) -> list[Value]:
    (x,) = node.floats()
    return [_by_sign(x, pointwise("mul", x, number(node.float("alpha", 0.01))))]


def _sloped(node: Node) -> list[Value]:
    x, slope = node.floats()
    return [_by_sign(x, pointwise("mul", x, slope))]


def _exponential_below(alpha: float, gamma: float, node: Node) -> list[Value]:
    """Scale a source, and below zero its exponential less one, by attributes or these numbers."""
    (x,) = node.floats()
    alpha, gamma = node.float("alpha", alpha), node.float("gamma", gamma)
    less = pointwise("sub", pointwise("exp", x), number(1.0))
    found = _by_sign(x, pointwise("mul", less, number(alpha)))
    return [found if gamma == 1.0 else pointwise("mul", found, number(gamma))]


def _hard(alpha: float, beta: float, node: Node) -> Value:
    (x,) = node.floats()
    line = pointwise("add", pointwise("mul", x, number(alpha)), number(beta))
    return pointwise("min", pointwise("max", line, number(0.0)), number(1.0))


def _hard_sigmoid(node: Node) -> list[Value]:
    return [_hard(node.float("alpha", 0.2), node.float("beta", 0.5), node)]


def _hard_swish(node: Node) -> list[Value]:
    return [pointwise("mul", node.input(0), _hard(1.0 / 6.0, 0.5, node))]


def _softsign(node: Node) -> list[Value]:
    (x,) = node.floats()
    return [pointwise("div", x, pointwise("add", pointwise("abs", x), number(1.0)))]


def _mish(node: Node) -> list[Value]:
    (x,) = node.floats()
    return [pointwise("mul", x, pointwise("tanh", pointwise("softplus", x)))]


def _gelu(node: Node) -> list[Value]:
    (x,) = node.floats()
    if node.call.attribute("approximate") == b"tanh":
        inner = pointwise("add", x, pointwise("mul", pointwise("cube", x), number(0.044715)))
        share = pointwise("tanh", pointwise("mul", inner, number(math.sqrt(2.0 / math.pi))))
    else:
        share = pointwise("erf", pointwise("mul", x, number(math.sqrt(0.5))))
    half = pointwise("mul", x, number(0.5))
    return [pointwise("mul", half, pointwise("add", share, number(1.0)))]


def _gemm(node: Node) -> list[Value]:
    left, right, *bias = node.floats()
    if node.call.integer("transA", 0):
        left = transposed(left, (1, 0))
    if node.call.integer("transB", 0):
        right = transposed(right, (1, 0))
    found = product(left, right)
    if (alpha := node.float("alpha", 1.0)) != 1.0:
        found = pointwise("mul", found, number(alpha))
    if bias and (beta := node.float("beta", 1.0)) != 0.0:
        scaled = bias[0] if beta == 1.0 else pointwise("mul", bias[0], number(beta))
        found = pointwise("add", found, scaled)
    return [found]


def _matmul(node: Node) -> list[Value]:
    return [product(*node.floats())]


def _axes_of(node: Node) -> tuple[int, ...]:
    rank = len(node.input(0).shape)
    axes = node.call.axes(rank, 13 if node.call.op == "ReduceSum" else 18)
    if axes:
        return axes
    return () if node.call.integer("noop_with_empty_axes", 0) else tuple(range(rank))


def _reduced(node: Node) -> tuple[Value, tuple[int, ...], bool]:
    """Return the value to be reduced, its axes, and whether these are kept as 1."""
    source = node.input(0)
    if source.kind is not NumberKind.FLOAT:
        raise ModelRejected(f"it computes with {source.kind.value} numbers")
    return source, _axes_of(node), node.call.integer("keepdims", 1) != 0


def _reduce(operation: str, before: str, after: str, node: Node) -> list[Value]:
    source, axes, keeps = _reduced(node)
    if before:
        source = pointwise(before, source)
    found = reduced(operation, source, axes, keeps=keeps)
    if node.call.op == "ReduceMean":
        found = pointwise("div", found, number(source.count / max(1, found.count)))
    return [pointwise(after, found) if after else found]


def _log_sum_exp(node: Node) -> list[Value]:
    source, axes, keeps = _reduced(node)
    highest = reduced("max", source, axes, keeps=True)
    shares = pointwise("exp", pointwise("sub", source, highest))
    total = pointwise("log", reduced("add", shares, axes, keeps=keeps))
    return [pointwise("add", total, reshaped(highest, total.shape))]


def _softmax(*, is_log: bool) -> Translate:
    def translate(node: Node) -> list[Value]:
        (source,) = node.floats()
        shape, rank, is_flat = source.shape, len(source.shape), node.call.version < 13
        axis = node.call.axis(rank, 1 if is_flat else -1)
        if is_flat:
            source = reshaped(source, (prod(shape[:axis]), prod(shape[axis:])))
            axis = 1
        highest = reduced("max", source, [axis], keeps=True)
        shifted = pointwise("sub", source, highest)
        shares = pointwise("exp", shifted)
        total = reduced("add", shares, [axis], keeps=True)
        if is_log:
            found = pointwise("sub", shifted, pointwise("log", total))
        else:
            found = pointwise("div", shares, total)
        return [reshaped(found, shape)]

    return translate


def _arg_max(node: Node) -> list[Value]:
    (source,) = node.floats()
    if node.call.op == "ArgMin":
        source = pointwise("neg", source)
    axis = node.call.axis(len(source.shape), 0)
    keeps = node.call.integer("keepdims", 1) != 0
    is_last = node.call.integer("select_last_index", 0) != 0
    return [highest_place(source, axis, keeps=keeps, is_last=is_last)]


def _layer_normalization(node: Node) -> list[Value]:
    source, scale, *bias = node.floats()
    rank = len(source.shape)
    axes = range(node.call.axis(rank, -1), rank)
    width = number(prod(source.shape[axis] for axis in axes))
    mean = pointwise("div", reduced("add", source, axes, keeps=True), width)
    apart = pointwise("sub", source, mean)
    total = reduced("add", pointwise("square", apart), axes, keeps=True)
    variance = pointwise("add", pointwise("div", total, width), number(node.float("epsilon", 1e-5)))
    found = pointwise("mul", pointwise("div", apart, pointwise("sqrt", variance)), scale)
    return [pointwise("add", found, bias[0]) if bias else found]


def _batch_normalization(node: Node) -> list[Value]:
    source, *statistics = node.floats()
    scale, shift, mean, variance = (
        _numbers(one, "a statistic").numbers.astype(np.float64) for one in statistics
    )
    factor = scale / np.sqrt(variance + node.float("epsilon", 1e-5))
    wide = (-1, *(1 for _ in source.shape[2:]))
    factors = constant(factor.astype(np.float32).reshape(wide))
    shifts = constant((shift - mean * factor).astype(np.float32).reshape(wide))
    return [pointwise("add", pointwise("mul", source, factors), shifts)]


def _convolution(node: Node) -> list[Value]:
    source, weights, *bias = node.floats()
    _, channels, *space = source.shape
    filters, per_group, *kernel = weights.shape
    groups = node.call.integer("group", 1)
    columns, out = _windows(node, places_of(source)[0], space, kernel)
    columns = columns.reshape(groups, channels // groups * prod(kernel), prod(out))
    left = reshaped(weights, (groups, filters // groups, per_group * prod(kernel)))
    found = reshaped(product(left, moved([source], columns)), (filters, prod(out)))
    if bias:
        found = pointwise("add", found, reshaped(bias[0], (filters, 1)))
    return [reshaped(found, (1, filters, *out))]


def _windows(
    node: Node, places: Places, space: Sequence[int], kernel: Sequence[int]
) -> tuple[Places, tuple[int, ...]]:
    """Return the windows of an image, [channels, *kernel, *out], and how many there are."""
    call, rank = node.call, len(space)
    if call.attribute("auto_pad") not in (None, b"NOTSET", b"VALID"):
        raise ModelRejected("auto_pad is not NOTSET or VALID: export the pads")
    strides = call.integers("strides") or (1,) * rank
    dilations = call.integers("dilations") or (1,) * rank
    pads = call.integers("pads") or (0,) * 2 * rank
    if min(pads, default=0) < 0:
        raise ModelRejected(f"pads {list(pads)}")
    sides = [(0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    padded = np.pad(places, sides, constant_values=ZERO)
    out = node.shapes[0][2:]
    require_places(len(places) * prod(kernel) * prod(out))
    at = [
        np.arange(size)[:, None] * dilation + np.arange(count) * stride
        for size, dilation, count, stride in zip(kernel, dilations, out, strides, strict=True)
    ]
    whole: list[slice | Places] = [slice(None)]
    for axis, places_along in enumerate(at):
        shape = [1] * 2 * rank
        shape[axis], shape[rank + axis] = places_along.shape
        whole.append(places_along.reshape(shape).astype(np.int64))
    return padded[tuple(whole)], tuple(out)


def _gru(node: Node) -> list[Value]:
    size = node.call.integer("hidden_size", 0)
    after = node.call.integer("linear_before_reset", 0) != 0

    def step(seen: Value, before: Value, weights: Value, bias: Sequence[Value]) -> Value:
        old = product(before, _columns(weights, 0, (2 if not after else 3) * size))
        rest, late = (_cut(one, 2 * size, 3 * size) for one in (seen, bias[1]))
        gates = pointwise("sigmoid", pointwise("add", pointwise("add", _cut(seen, 0, 2 * size),
                          _cut(old, 0, 2 * size)), _cut(bias[1], 0, 2 * size)))  # fmt: skip
        keep, reset = _cut(gates, 0, size), _cut(gates, size, 2 * size)
        if after:
            inner = pointwise("mul", reset, pointwise("add", _cut(old, 2 * size, 3 * size), late))
        else:
            part = _columns(weights, 2 * size, 3 * size)
            inner = pointwise("add", product(pointwise("mul", reset, before), part), late)
        new = pointwise("tanh", pointwise("add", rest, inner))
        less = pointwise("sub", number(1.0), keep)
        return pointwise("add", pointwise("mul", less, new), pointwise("mul", keep, before))

    return _recurrent(node, 3, lambda seen, states, *more: [step(seen, states[0], *more)], size)


def _lstm(node: Node) -> list[Value]:
    size = node.call.integer("hidden_size", 0)
    if node.optional(7) is not None or node.call.integer("input_forget", 0):
        raise ModelRejected("it has peepholes or coupled gates")

    def step(
        seen: Value, states: Sequence[Value], weights: Value, bias: Sequence[Value]
    ) -> list[Value]:
        hidden, cell = states
        both = pointwise("add", pointwise("add", seen, product(hidden, weights)), bias[1])
        gates = pointwise("sigmoid", _cut(both, 0, 3 * size))
        new = pointwise("tanh", _cut(both, 3 * size, 4 * size))
        taken, shown, kept = (_cut(gates, k * size, (k + 1) * size) for k in range(3))
        cell = pointwise("add", pointwise("mul", kept, cell), pointwise("mul", taken, new))
        return [pointwise("mul", shown, pointwise("tanh", cell)), cell]

    return _recurrent(node, 4, step, size)


def _cut(source: Value, start: int, end: int) -> Value:
    """Return columns of a row: [1, end - start]."""
    return moved([source], places_of(source)[..., start:end])


def _columns(weights: Value, start: int, end: int) -> Value:
    return moved([weights], places_of(weights)[:, start:end])


def _recurrent(
    node: Node,
    gates: int,
    step: Callable[[Value, Sequence[Value], Value, Sequence[Value]], list[Value]],
    size: int,
) -> list[Value]:
    """Write the steps of a recurrent operator of one direction."""
    source, weights, recurrence = node.input(0), node.input(1), node.input(2)
    steps, _, features = source.shape
    plain = [
        node.call.attribute("direction") in (None, b"forward"),
        node.call.attribute("activations") is None,
        node.call.attribute("clip") is None,
        node.optional(4) is None,
        steps <= _MOST_STEPS,
    ]
    if not all(plain):
        raise ModelRejected(
            "it is not one forward pass by the usual activations, without lengths and clipping, of"
            f" {_MOST_STEPS} steps at most"
        )
    by_feature = transposed(reshaped(weights, weights.shape[1:]), (1, 0))
    by_state = transposed(reshaped(recurrence, recurrence.shape[1:]), (1, 0))
    width = gates * size
    none = constant(np.zeros((1, 2 * width), np.float32))
    both = reshaped(node.optional(3) or none, (1, 2 * width))
    bias = [_cut(both, 0, width), _cut(both, width, 2 * width)]
    zero = constant(np.zeros((1, size), np.float32))
    count = 2 if node.call.op == "LSTM" else 1
    states = [reshaped(node.optional(5 + k) or zero, (1, size)) for k in range(count)]
    found = []
    for number_of_step in range(steps):
        start = number_of_step * features
        row = moved([source], places_of(source).ravel()[start : start + features][None])
        seen = pointwise("add", product(row, by_feature), bias[0])
        states = step(seen, states, by_state, bias)
        found.append(states[0])
    outputs = [reshaped(joined(found, 0), (steps, 1, 1, size))]
    return [*outputs, *(reshaped(one, (1, 1, size)) for one in states)]


def _reshape(node: Node) -> list[Value]:
    return [reshaped(node.input(0), node.shapes[0])]


def _transpose(node: Node) -> list[Value]:
    rank = len(node.input(0).shape)
    return [transposed(node.input(0), node.call.integers("perm") or range(rank)[::-1])]


def _concat(node: Node) -> list[Value]:
    return [joined(node.inputs, node.call.axis(len(node.input(0).shape), 0))]


def _split(node: Node) -> list[Value]:
    source = node.input(0)
    axis = node.call.axis(len(source.shape), 0)
    ends = np.cumsum([shape[axis] for shape in node.shapes])[:-1]
    return [moved([source], part) for part in np.split(places_of(source), ends, axis)]


def _slice(node: Node) -> list[Value]:
    call, places = node.call, places_of(node.input(0))
    if call.version < 10:
        starts, ends = call.integers("starts") or (), call.integers("ends") or ()
        axes, steps = call.integers("axes"), None
    else:
        starts, ends = call.known(1), call.known(2)
        axes = None if call.optional(3) is None else call.known(3)
        steps = None if call.optional(4) is None else call.known(4)
    steps = steps or (1,) * len(starts)
    for axis, start, end, step in zip(axes or range(len(starts)), starts, ends, steps, strict=True):
        size = places.shape[axis]
        first, last = (0, size) if step > 0 else (-1, size - 1)
        start, end = (place + size if place < 0 else place for place in (start, end))
        chosen = range(min(max(start, first), last), min(max(end, first), last), step)
        places = places.take(np.array(chosen, np.int64), axis)
    return [moved([node.input(0)], places)]


def _gather(node: Node) -> list[Value]:
    source, wanted = node.input(0), node.input(1)
    axis = node.call.axis(len(source.shape), 0)
    before, size, behind = source.shape[:axis], source.shape[axis], source.shape[axis + 1 :]
    if isinstance(wanted, Constant):
        numbers = wanted.numbers.astype(np.int64)
        inside = np.clip(np.where(numbers < 0, numbers + size, numbers), 0, size - 1)
        return [moved([source], places_of(source).take(inside, axis))]
    blocks = reshaped(source, (prod(before), size, prod(behind)))
    picks = reshaped(wanted, (wanted.count,))
    shape = (prod(before), wanted.count, prod(behind))
    return [reshaped(Picked(shape, source.kind, blocks, picks), (*before, *wanted.shape, *behind))]


def _expand(node: Node) -> list[Value]:
    return [expanded(node.input(0), node.shapes[0])]


def _tile(node: Node) -> list[Value]:
    source, repeats = node.input(0), node.call.known(1)
    require_places(source.count * prod(repeats))
    return [moved([source], np.tile(places_of(source), repeats))]


def _identity(node: Node) -> list[Value]:
    return [node.input(0)]


def _filled(node: Node) -> list[Value]:
    filler = node.call.attribute("value")
    if filler is not None:
        raise ModelRejected("it fills with numbers other than 0")
    require_places(prod(node.shapes[0]))
    return [constant(np.zeros(node.shapes[0], np.float32))]


TRANSLATIONS: dict[str, Translate] = {
    **{op: partial(_elementwise, operation) for op, operation in (
        ("Relu", "relu"), ("Sigmoid", "sigmoid"), ("Tanh", "tanh"), ("Softplus", "softplus"),
        ("Exp", "exp"), ("Log", "log"), ("Sqrt", "sqrt"), ("Erf", "erf"), ("Abs", "abs"),
        ("Neg", "neg"), ("Sign", "sign"), ("Reciprocal", "reciprocal"), ("Floor", "floor"),
        ("Ceil", "ceil"), ("Round", "nearest"), ("Sin", "sin"), ("Cos", "cos"), ("Add", "add"),
        ("Sub", "sub"), ("Mul", "mul"), ("Div", "div"),
    )},
    **{op: partial(_folded, operation) for op, operation in (
        ("Min", "min"), ("Max", "max"), ("Sum", "add"),
    )},
    **dict.fromkeys(_COMPARED, _compared),
    **{op: partial(_logic, op.lower()) for op in ("And", "Or", "Xor", "Not")},
    **{op: partial(_reduce, *parts) for op, parts in {
        "ReduceSum": ("add", "", ""), "ReduceMean": ("add", "", ""), "ReduceMax": ("max", "", ""),
        "ReduceMin": ("min", "", ""), "ReduceL1": ("add", "abs", ""),
        "ReduceL2": ("add", "square", "sqrt"), "ReduceSumSquare": ("add", "square", ""),
    }.items()},
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg_max),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    **dict.fromkeys(("Identity", "Dropout"), _identity),
    "Mean": _mean,
    "Where": _where,
    "Cast": _cast,
    "Clip": _clip,
    "Pow": _power,
    "LeakyRelu": _leaky,
    "PRelu": _sloped,
    "Elu": partial(_exponential_below, 1.0, 1.0),
    "Selu": partial(_exponential_below, 1.6732632423543772, 1.0507009873554805),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Softsign": _softsign,
    "Mish": _mish,
    "Gelu": _gelu,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "ReduceLogSumExp": _log_sum_exp,
    "Softmax": _softmax(is_log=False),
    "LogSoftmax": _softmax(is_log=True),
    "LayerNormalization": _layer_normalization,
    "BatchNormalization": _batch_normalization,
    "Conv": _convolution,
    "GRU": _gru,
    "LSTM": _lstm,
    "Transpose": _transpose,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Gather": _gather,
    "Expand": _expand,
    "Tile": _tile,
    "ConstantOfShape": _filled,
}  # fmt: skip
"""What translates each operator. Constants and what only shapes decide need no translation."""
