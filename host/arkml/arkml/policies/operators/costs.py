"""
The CPU time of operators: measured nanoseconds for each unit of their work.

`tests/benchmarks/operator_costs.py` measures them, over shapes that are slow for their size, on one
core of a Xeon of 2023 (AVX-512). A slower machine is detected by the trial run of each model.
"""

from __future__ import annotations

from typing import NamedTuple

from arkml.policies.operators.call import Call, ElementType, Tensor, grows

STORED = 0.4
"""Nanoseconds to read an element of a weight, once a run."""

NODE = 3_000.0
"""Nanoseconds to begin a node, once a run."""

_DOUBLE = 3.0  # nanoseconds at least for an element of 8 bytes: such code is rarely vectorized


class UnitCost(NamedTuple):
    """
    Nanoseconds for each unit of an operator's work.

    element: for each element read or written. work, step: for each unit of these, as in `Call`.
    """

    element: float
    work: float = 0.0
    step: float = 0.0


class OperatorCost(NamedTuple):
    """
    The unit costs of an operator on ordinary numbers, and on the slowest, which are below 1e-38.
    """

    ordinary: UnitCost
    subnormal: UnitCost


_PLAIN = "Identity Reshape Flatten Squeeze Unsqueeze Shape Constant ConstantOfShape Dropout"
REDUCTIONS = (
    *("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2"),
    *("ReduceSumSquare", "ReduceProd", "ReduceLogSum", "ReduceLogSumExp"),
)
"""Operators that make one element of many."""

_MEASURED: dict[str, tuple[float, float]] = {  # for each element: ordinary, subnormal
    f"{_PLAIN} Clip Abs Neg Not Relu ThresholdedRelu Cast Floor Ceil Round": (0.3, 0.3),
    "Sign Slice": (1.0, 1.0),
    "Split": (1.5, 1.5),
    "Transpose Concat Tile": (3.0, 3.0),
    "Gather": (6.0, 6.0),
    "Expand": (5.0, 5.0),
    "LeakyRelu HardSigmoid Softsign Sqrt Reciprocal": (0.4, 6.0),
    "HardSwish Gelu Erf": (0.5, 11.5),
    "Exp": (3.0, 11.0),
    "Log": (1.2, 9.0),
    "Elu Selu Celu": (3.0, 31.0),
    "Sigmoid Tanh": (0.4, 28.0),
    "Sin Cos": (3.4, 46.0),
    "Softplus Mish": (8.0, 68.0),
    "Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh": (15.0, 30.0),
    "Mod": (40.0, 40.0),
    "IsNaN IsInf": (1.0, 1.0),
    "Pad": (6.0, 6.0),
    "OneHot": (12.0, 12.0),
    "GatherElements": (10.0, 10.0),
    "Trilu": (0.5, 0.5),
    "Add Sub Min Max Sum Equal Greater GreaterOrEqual Less LessOrEqual And Or Xor": (6.5, 6.5),
    "Mul Div PRelu": (6.5, 24.0),
    "Mean": (6.5, 14.0),
    "Pow": (11.0, 55.0),
    "Where": (10.0, 10.0),
    "Softmax LogSoftmax": (7.0, 7.0),
    "LpNormalization": (7.0, 59.0),
    "RandomNormalLike RandomUniformLike": (6.0, 6.0),
    "ArgMax ArgMin": (5.0, 5.0),
    "GlobalAveragePool GlobalMaxPool": (0.7, 1.5),
    "BatchNormalization": (1.5, 14.5),
    "InstanceNormalization": (6.5, 82.0),
    "LayerNormalization": (6.5, 23.0),
}

WEIGHTS: dict[str, OperatorCost] = {
    op: OperatorCost(UnitCost(ordinary), UnitCost(subnormal))
    for names, (ordinary, subnormal) in _MEASURED.items()
    for op in names.split()
} | {
    **dict.fromkeys(REDUCTIONS, OperatorCost(UnitCost(4.5, 0.0, 45.0), UnitCost(47.0, 0.0, 45.0))),
    "ReduceLogSumExp": OperatorCost(UnitCost(15.0, 0.0, 90.0), UnitCost(70.0, 0.0, 90.0)),
    "CumSum": OperatorCost(UnitCost(5.0, 0.0, 8.0), UnitCost(5.0, 0.0, 8.0)),
    "TopK": OperatorCost(UnitCost(8.0, 6.0), UnitCost(8.0, 6.0)),
    "Einsum": OperatorCost(UnitCost(12.0, 0.25, 250.0), UnitCost(60.0, 3.2, 250.0)),
    "Gemm": OperatorCost(UnitCost(2.6, 0.035), UnitCost(48.0, 2.9)),
    "MatMul": OperatorCost(UnitCost(2.6, 0.035, 125.0), UnitCost(48.0, 2.9, 125.0)),
    "LSTM": OperatorCost(UnitCost(2.6, 0.055, 190.0), UnitCost(48.0, 3.2, 2_500.0)),
    "GRU": OperatorCost(UnitCost(2.6, 0.055, 190.0), UnitCost(48.0, 3.2, 2_500.0)),
    "RNN": OperatorCost(UnitCost(2.6, 0.055, 190.0), UnitCost(48.0, 3.2, 2_500.0)),
    "Multinomial": OperatorCost(UnitCost(22.0, 1.0), UnitCost(26.0, 1.0)),
    "Conv": OperatorCost(UnitCost(0.5, 0.03, 0.6), UnitCost(6.0, 2.9, 41.0)),
    "MaxPool": OperatorCost(UnitCost(1.7, 1.5), UnitCost(1.7, 1.5)),
    "AveragePool": OperatorCost(UnitCost(1.7, 2.2), UnitCost(26.0, 3.2)),
}
"""The weights of every operator of `RULES`."""


class NodeTime(NamedTuple):
    """The nanoseconds of one node: for each run, and for each row."""

    fixed: float
    row: float


def node_times(call: Call, results: list[Tensor], rows: int) -> tuple[NodeTime, NodeTime]:
    """
    Return the times of a node on ordinary and on subnormal numbers.

    `rows` is the batch size of the tensors. A node whose results do not depend on the batch size
    counts once per run, as for `rows` rows.
    """
    by_row = any(grows(tensor.count) for tensor in results)
    stored = elements = doubles = 0
    for tensor in call.inputs:
        if tensor is not None:
            if tensor.stored or (by_row and not grows(tensor.count)):
                stored += tensor.count
            else:
                elements += tensor.count
    for tensor in results:
        elements += tensor.count
        doubles += tensor.count if tensor.kind == ElementType.DOUBLE else 0
    ordinary, subnormal = (
        weight.element * elements
        + _DOUBLE * doubles
        + weight.work * call.work
        + weight.step * call.steps
        for weight in WEIGHTS[call.op]
    )
    once = NODE + STORED * stored
    if not by_row:
        return NodeTime(once + ordinary, 0.0), NodeTime(once + subnormal, 0.0)
    return NodeTime(once, ordinary / rows), NodeTime(once, subnormal / rows)
