"""Size rules of the operators that do the arithmetic of networks."""

from __future__ import annotations

from math import prod

from arkml.errors import ModelRejected
from arkml.policies.operators.call import (
    FLOATS,
    Call,
    ElementType,
    Tensor,
    broadcast,
    checked_type,
)
from arkml.policies.operators.elementwise import floats_only

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""The gates of each recurrent operator."""


def gemm(call: Call) -> list[Tensor]:
    """
    Size Gemm, [rows, columns], and count its work.

    The matrices are [rows, inner] and [inner, columns], transposed where transA and transB say so.

    The bias, input 2, must broadcast to [rows, columns]. Work: rows * columns * inner.
    """
    floats_only(call)
    left, right = call.input(0), call.input(1)
    if len(left.shape) != 2 or len(right.shape) != 2:
        raise ModelRejected("Gemm of tensors that are not matrices")
    rows, inner = left.shape[::-1] if call.integer("transA", 0) else left.shape
    inner_again, columns = right.shape[::-1] if call.integer("transB", 0) else right.shape
    if inner != inner_again:
        raise ModelRejected(f"{list(left.shape)} and {list(right.shape)} do not fit together")
    shape = (rows, columns)
    bias = call.optional(2)
    if bias is not None and broadcast(shape, bias.shape) != shape:
        raise ModelRejected(f"a bias {list(bias.shape)} for {list(shape)}")
    call.work += rows * columns * inner
    return [Tensor(left.kind, shape)]


def matmul(call: Call) -> list[Tensor]:
    """
    Size MatMul of [..., rows, inner] and [..., inner, columns], whose leading axes broadcast.

    A vector is a matrix of one row or column, which the result lacks. Work: elements of the result
    times inner. Steps: matrices.
    """
    floats_only(call)
    left, right = call.input(0).shape, call.input(1).shape
    if not left or not right:
        raise ModelRejected("MatMul of a scalar")
    wide_left = left if len(left) > 1 else (1, *left)
    wide_right = right if len(right) > 1 else (*right, 1)
    if wide_left[-1] != wide_right[-2]:
        raise ModelRejected(f"{list(left)} and {list(right)} do not fit together")
    stacked = broadcast(wide_left[:-2], wide_right[:-2])
    rows = wide_left[-2:-1] if len(left) > 1 else ()
    columns = wide_right[-1:] if len(right) > 1 else ()
    shape = (*stacked, *rows, *columns)
    call.work += prod(shape) * wide_left[-1]
    call.steps += prod(stacked)
    return [Tensor(call.input(0).kind, shape)]


_OF_INTEGERS = frozenset({"ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"})


def reduce(call: Call) -> list[Tensor]:
    """
    Size a reduction of floats, input 0, over axes from an attribute or input 1.

    Steps: elements of the result. For integers only sum, product and extremes are allowed, over at
    least one element: a mean over no elements would divide by zero.
    """
    tensor = call.input(0)
    is_exact = call.op in _OF_INTEGERS and tensor.count > 0
    if not is_exact or tensor.kind is ElementType.BOOL:
        floats_only_first(call)
    rank = len(tensor.shape)
    axes = call.axes(rank, 13 if call.op == "ReduceSum" else 18)
    if not axes:
        nothing = call.integer("noop_with_empty_axes", 0) != 0
        axes = () if nothing else tuple(range(rank))
    keep = call.integer("keepdims", 1) != 0
    result = Tensor(tensor.kind, _reduced(tensor.shape, axes, keep=keep))
    call.steps += result.count
    return [result]


def arg_max(call: Call) -> list[Tensor]:
    """Size ArgMax or ArgMin of input 0: int64, without `axis`, which must not be empty."""
    floats_only(call)
    tensor = call.input(0)
    axis = call.axis(len(tensor.shape), 0)
    if tensor.shape[axis] == 0:
        raise ModelRejected(f"{call.op} of nothing")
    keep = call.integer("keepdims", 1) != 0
    return [Tensor(ElementType.INT64, _reduced(tensor.shape, (axis,), keep=keep))]


def floats_only_first(call: Call) -> None:
    """Raise ModelRejected unless input 0 has float elements."""
    if call.input(0).kind not in FLOATS:
        raise ModelRejected(f"{call.op} on {call.input(0).kind.name} is not allowed")


def _reduced(shape: tuple[int, ...], axes: tuple[int, ...], *, keep: bool) -> tuple[int, ...]:
    if keep:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def normalization(call: Call) -> list[Tensor]:
    """
    Size a normalization of input 0 by statistics in the file, or of each image. No other work.

    The shape equals the shape of input 0. Training mode is refused.
    """
    floats_only(call)
    if call.integer("training_mode", 0) != 0:
        raise ModelRejected("it is in training mode")
    tensor = call.input(0)
    return [Tensor(tensor.kind, tensor.shape)]


def layer_normalization(call: Call) -> list[Tensor]:
    """
    Size LayerNormalization of input 0 over the axes from `axis` on. No other work.

    Outputs: a tensor like the input; mean and inverse deviation, with size 1 on these axes.
    """
    floats_only(call)
    tensor = call.input(0)
    axis = call.axis(len(tensor.shape), -1)
    statistics = (*tensor.shape[:axis], *(1 for _ in tensor.shape[axis:]))
    return [
        Tensor(tensor.kind, tensor.shape),
        Tensor(ElementType.FLOAT, statistics),
        Tensor(ElementType.FLOAT, statistics),
    ]


def random_like(call: Call) -> list[Tensor]:
    """
    Size RandomNormalLike or RandomUniformLike: the shape of input 0, the type of attribute `dtype`.

    No other work.
    """
    tensor = call.input(0)
    kind = checked_type(call.integer("dtype", int(tensor.kind)))
    return [Tensor(kind, tensor.shape)]


def multinomial(call: Call) -> list[Tensor]:
    """
    Size Multinomial over logits [rows, classes], input 0: [rows, sample_size].

    Work: rows * classes * sample_size.
    """
    floats_only(call)
    tensor = call.input(0)
    samples = call.integer("sample_size", 1)
    if len(tensor.shape) != 2 or tensor.shape[1] == 0 or samples < 1:
        raise ModelRejected(f"{samples} samples of a shape {list(tensor.shape)}")
    kind = checked_type(call.integer("dtype", int(ElementType.INT32)))
    call.work += tensor.count * samples
    return [Tensor(kind, (tensor.shape[0], samples))]


def recurrent(call: Call) -> list[Tensor]:
    """
    Size LSTM, GRU or RNN over input 0, [steps, batch, features], in one direction or both.

    Inputs 1 and 2 are the weights of features, [directions, gates * hidden, features], and of the
    recurrent state, [directions, gates * hidden, hidden]; 3 to 7 are optional: biases, lengths, two
    initial states, peepholes. Outputs: [steps, directions, batch, hidden] and the last states.
    Work: the multiply-adds of all gates in all steps. Steps: the steps of each row and direction.
    Scratch: two floats a gate and step.
    """
    tensor, weights, recurrence = call.input(0), call.input(1), call.input(2)
    floats_only_first(call)
    gates = GATES[call.op]
    hidden = call.integer("hidden_size", 0)
    if len(tensor.shape) != 3 or hidden < 1 or call.integer("layout", 0) != 0:
        raise ModelRejected(f"hidden size {hidden} over a shape {list(tensor.shape)}")
    steps, batch, features = tensor.shape
    directions = 2 if call.attribute("direction") == b"bidirectional" else 1
    if weights.shape != (directions, gates * hidden, features):
        raise ModelRejected(f"weights {list(weights.shape)} for {features} features")
    if recurrence.shape != (directions, gates * hidden, hidden):
        raise ModelRejected(f"recurrent weights {list(recurrence.shape)} for hidden size {hidden}")
    state = (directions, batch, hidden)
    expected = {
        3: (directions, 2 * gates * hidden),
        4: (batch,),
        5: state,
        6: state,
        7: (directions, 3 * hidden),
    }
    for index, shape in expected.items():
        optional = call.optional(index)
        if optional is not None and optional.shape != shape:
            actual = list(optional.shape)
            raise ModelRejected(f"input {index} has shape {actual}, expected {list(shape)}")
    call.work += steps * batch * directions * gates * hidden * (features + hidden)
    call.steps += steps * batch * directions
    call.scratch += 8 * steps * batch * directions * gates * hidden
    last = Tensor(tensor.kind, state)
    return [Tensor(tensor.kind, (steps, directions, batch, hidden)), last, last][: call.outputs]
