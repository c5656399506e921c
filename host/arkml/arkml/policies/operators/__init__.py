"""
The operators that a policy's model may use, each with a rule that sizes its outputs before a run.
"""

from __future__ import annotations

from collections.abc import Callable

from arkml.policies.operators import (
    arrangement,
    contraction,
    costs,
    elementwise,
    layers,
    selection,
    windows,
)
from arkml.policies.operators.call import Call, Tensor

Rule = Callable[[Call], list[Tensor]]
"""
Checks one node and returns its outputs, all that its operator has. Reading inputs and writing
outputs is charged by `vetting`; a rule adds the arithmetic beyond that to `call.work` and to
`call.steps`, and room for intermediate results to `call.scratch`. Raises ModelRejected.
"""

_FLOAT_BY_FLOAT = """
    Relu LeakyRelu Elu Selu Celu Sigmoid HardSigmoid Tanh Softplus Softsign Gelu Mish HardSwish
    ThresholdedRelu Exp Log Sqrt Erf Reciprocal Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh
    Atanh Floor Ceil Round Softmax LogSoftmax LpNormalization
"""

RULES: dict[str, Rule] = {
    **dict.fromkeys(_FLOAT_BY_FLOAT.split(), elementwise.same_float),
    **dict.fromkeys(("Abs", "Neg", "Sign", "Clip", "Not"), elementwise.same),
    **dict.fromkeys(("Pow", "PRelu", "Mean"), elementwise.combine_floats),
    **dict.fromkeys(("Min", "Max", "Sum"), elementwise.combine),
    **dict.fromkeys(("Add", "Sub", "Mul"), elementwise.arithmetic),
    **dict.fromkeys(
        ("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor"),
        elementwise.compare,
    ),
    "Equal": elementwise.equal,
    "Div": elementwise.divide,
    "Mod": elementwise.remainder,
    **dict.fromkeys(("IsNaN", "IsInf"), selection.is_special),
    "Where": elementwise.where,
    "Identity": elementwise.identity,
    "Cast": elementwise.cast,
    "Dropout": elementwise.dropout,
    "Gemm": layers.gemm,
    "MatMul": layers.matmul,
    "Einsum": contraction.einsum,
    **dict.fromkeys(layers.GATES, layers.recurrent),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization"), layers.normalization),
    "LayerNormalization": layers.layer_normalization,
    **dict.fromkeys(costs.REDUCTIONS, layers.reduce),
    **dict.fromkeys(("ArgMax", "ArgMin"), layers.arg_max),
    **dict.fromkeys(("RandomNormalLike", "RandomUniformLike"), layers.random_like),
    "TopK": selection.top,
    "CumSum": selection.cumulative_sum,
    "Trilu": selection.triangle,
    "OneHot": selection.one_hot,
    "Pad": selection.pad,
    "GatherElements": selection.gather_elements,
    "Multinomial": layers.multinomial,
    "Conv": windows.convolution,
    **dict.fromkeys(("MaxPool", "AveragePool"), windows.pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), windows.global_pool),
    "Constant": arrangement.constant,
    "ConstantOfShape": arrangement.constant_of_shape,
    "Shape": arrangement.shape_of,
    "Reshape": arrangement.reshape,
    "Flatten": arrangement.flatten,
    "Squeeze": arrangement.squeeze,
    "Unsqueeze": arrangement.unsqueeze,
    "Transpose": arrangement.transpose,
    "Concat": arrangement.concat,
    "Split": arrangement.split,
    "Slice": arrangement.slice_,
    "Gather": arrangement.gather,
    "Expand": arrangement.expand,
    "Tile": arrangement.tile,
}
"""
Rules by operator. Left out are operators that can end the process, those whose sizes are known
only in a run, and loops, branches that only a run decides, and sequences.
"""
