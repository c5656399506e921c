"""Size rules of elementwise operators; their cost is reading and writing elements."""

from __future__ import annotations

from operator import add, mul, sub

from arkml.errors import ModelRejected
from arkml.policies.operators.call import (
    FLOATS,
    MAX_KNOWN,
    Call,
    ElementType,
    Tensor,
    broadcast,
    checked_type,
    grows,
)

_LARGEST = 1 << 62
_INTEGERS = frozenset({ElementType.INT32, ElementType.INT64})


def same(call: Call) -> list[Tensor]:
    """Size an operator whose output has the type and shape of input 0."""
    tensor = call.input(0)
    return [Tensor(tensor.kind, tensor.shape)]


def same_float(call: Call) -> list[Tensor]:
    """Size an operator whose output has the type and shape of input 0; inputs must be floats."""
    floats_only(call)
    return same(call)


def identity(call: Call) -> list[Tensor]:
    """Size Identity of input 0, and keep its tracked values."""
    tensor = call.input(0)
    return [Tensor(tensor.kind, tensor.shape, tensor.value)]


def cast(call: Call) -> list[Tensor]:
    """Size Cast of input 0 to the type `to`; integers keep tracked values."""
    tensor = call.input(0)
    kind = checked_type(call.integer("to", 0))
    result = Tensor(kind, tensor.shape)
    integers = kind in _INTEGERS and tensor.kind in _INTEGERS
    return [_with_value(result, tensor.value if integers else None)]


def dropout(call: Call) -> list[Tensor]:
    """
    Size Dropout outside of training: input 0 and a mask of its shape, of its type before opset 10.
    """
    tensor = call.input(0)
    mask = ElementType.BOOL if call.version >= 10 else tensor.kind
    return [Tensor(tensor.kind, tensor.shape), Tensor(mask, tensor.shape)][: call.outputs]


def floats_only(call: Call) -> None:
    """Raise ModelRejected unless all inputs are floats."""
    for tensor in call.inputs:
        if tensor is not None and tensor.kind not in FLOATS:
            raise ModelRejected(f"{call.op} on {tensor.kind.name} is not allowed")


def combine(call: Call) -> list[Tensor]:
    """Size an operator on any number of inputs: their broadcast shape, the type of input 0."""
    return [Tensor(call.input(0).kind, _together(call))]


def combine_floats(call: Call) -> list[Tensor]:
    """Size an operator on any number of inputs, which must be floats."""
    floats_only(call)
    return combine(call)


def compare(call: Call) -> list[Tensor]:
    """Size a comparison or a logical operator: the broadcast shape, of bools."""
    return [Tensor(ElementType.BOOL, _together(call))]


def equal(call: Call) -> list[Tensor]:
    """
    Size Equal, and track its values for the pattern `shape == -1` of exporters.

    A number that grows with the batch is never negative; its comparison with others is unknown.
    """
    left, right = call.input(0).value, call.input(1).value
    value = None
    if left is not None and right is not None:
        pairs = _paired(left, right)
        if not any((grows(a) and b >= 0) or (grows(b) and a >= 0) for a, b in pairs):
            value = tuple(int(a == b) for a, b in pairs)
    return [_with_value(Tensor(ElementType.BOOL, _together(call)), value)]


def arithmetic(call: Call) -> list[Tensor]:
    """Size Add, Sub or Mul; the values of short integer tensors are tracked."""
    result = Tensor(call.input(0).kind, _together(call))
    left, right = call.input(0).value, call.input(1).value
    if left is None or right is None:
        return [result]
    pairs = _paired(left, right)
    if any(grows(a) or grows(b) for a, b in pairs) and (
        call.op != "Mul" or any(a < 0 or b < 0 for a, b in pairs)
    ):
        return [result]
    operation = {"Add": add, "Sub": sub, "Mul": mul}[call.op]
    return [_with_value(result, tuple(operation(a, b) for a, b in pairs))]


def divide(call: Call) -> list[Tensor]:
    """Size Div of floats, or of integers by positive integers that lie in the file."""
    left, right = call.input(0), call.input(1)
    result = Tensor(left.kind, _together(call))
    if left.kind in FLOATS and right.kind in FLOATS:
        return [result]
    if not right.stored or right.value is None or min(right.value, default=0) <= 0:
        raise ModelRejected(f"Div on {left.kind.name} by a divisor that is not a positive constant")
    if left.value is None or any(map(grows, left.value)) or min(left.value, default=0) < 0:
        return [result]
    pairs = _paired(left.value, right.value)
    return [_with_value(result, tuple(a // b for a, b in pairs))]


def remainder(call: Call) -> list[Tensor]:
    """Size Mod of floats, or of integers by constants in the file other than 0 and -1."""
    left, right = call.input(0), call.input(1)
    result = Tensor(left.kind, _together(call))
    if left.kind is right.kind is ElementType.FLOAT:
        return [result]
    if left.kind not in _INTEGERS or not right.stored or right.value is None:
        raise ModelRejected(f"Mod on {left.kind.name} by a divisor that is not a constant")
    if {0, -1} & {*right.value}:  # either ends the process
        raise ModelRejected(f"Mod on {left.kind.name} by 0 or -1")
    if left.value is None or any(map(grows, left.value)) or min(left.value, default=0) < 0:
        return [result]
    if min(right.value, default=1) < 0:
        return [result]
    pairs = _paired(left.value, right.value)
    return [_with_value(result, tuple(a % b for a, b in pairs))]


def where(call: Call) -> list[Tensor]:
    """Size Where: the broadcast shape, the type of input 1; short integer values are tracked."""
    condition, then, otherwise = call.input(0), call.input(1), call.input(2)
    result = Tensor(then.kind, _together(call))
    if condition.value is None or then.value is None or otherwise.value is None:
        return [result]
    count = max(len(condition.value), len(then.value), len(otherwise.value))
    chosen = zip(
        _stretched(condition.value, count),
        _stretched(then.value, count),
        _stretched(otherwise.value, count),
        strict=True,
    )
    return [_with_value(result, tuple(a if flag else b for flag, a, b in chosen))]


def _together(call: Call) -> tuple[int, ...]:
    return broadcast(*(call.input(index).shape for index in range(len(call.inputs))))


def _stretched(value: tuple[int, ...], count: int) -> tuple[int, ...]:
    return value * count if len(value) == 1 else value


def _paired(left: tuple[int, ...], right: tuple[int, ...]) -> list[tuple[int, int]]:
    count = max(len(left), len(right))
    return list(zip(_stretched(left, count), _stretched(right, count), strict=False))


def _with_value(result: Tensor, value: tuple[int, ...] | None) -> Tensor:
    """Return the result with its values, if they are complete, short and fit the type."""
    if value is None or len(value) != result.count or len(value) > MAX_KNOWN:
        return result
    if any(abs(number) >= _LARGEST for number in value):
        return result
    if result.kind == ElementType.INT32 and any(abs(number) >= 1 << 31 for number in value):
        return result
    return Tensor(result.kind, result.shape, value)
