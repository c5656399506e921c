"""The operators of kernels, beside onnxruntime."""

from itertools import pairwise

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from tests.unit.kernel_runs import NEAR, ONNXRUNTIME, WASM, answers, errors
from tests.unit.policy_models import node, port

from arkml.errors import ModelRejected
from arkml.policies.kernel import render
from arkml.policies.kernel.translation import TRANSLATIONS

SIZES = st.integers(1, 40)
EXAMPLES = settings(max_examples=25, deadline=None)
ROWS = 20


def model(nodes, inputs, outputs, weights=(), *, opset=17):
    """A model of float32 ports; shapes without rows, weights by name."""
    graph = helper.make_graph(
        list(nodes), "policy",
        [port(name, "N", *shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in dict(weights).items()],
    )  # fmt: skip
    sets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=sets, ir_version=8).SerializeToString()


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


def assert_near(data, rows=ROWS, *, near=NEAR, **options):
    found = errors(data, rows, **options)

    assert max(found.values()) <= near, found


UNARY = [
    ("Relu", {}), ("Sigmoid", {}), ("Tanh", {}), ("Softplus", {}), ("Exp", {}), ("Erf", {}),
    ("Abs", {}), ("Neg", {}), ("Sign", {}), ("Reciprocal", {}), ("Floor", {}), ("Ceil", {}),
    ("Round", {}), ("Sin", {}), ("Cos", {}), ("LeakyRelu", {"alpha": 0.3}), ("Elu", {"alpha": 1.5}),
    ("Selu", {}), ("HardSigmoid", {"alpha": 0.3}), ("HardSwish", {}), ("Softsign", {}),
    ("Softmax", {"axis": -1}), ("Softmax", {"axis": 1}), ("LogSoftmax", {"axis": 2}),
    ("ReduceSum", {}), ("ReduceMean", {"axes": [2]}), ("ReduceMax", {"axes": [1], "keepdims": 0}),
    ("ReduceMin", {"axes": [1, 2]}), ("ReduceL1", {"axes": [-1]}), ("ReduceL2", {"axes": [1]}),
    ("ReduceSumSquare", {"axes": [2]}), ("ReduceLogSumExp", {"axes": [2]}),
    ("ReduceLogSumExp", {"axes": [1, 2], "keepdims": 0}), ("Transpose", {"perm": [0, 2, 1]}),
    ("Flatten", {}), ("Identity", {}), ("Dropout", {}), ("Mish", {}), ("Gelu", {}),
    ("Gelu", {"approximate": "tanh"}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "attributes"), UNARY, ids=str)
@pytest.mark.parametrize("shape", [(3, 5), (2, 8), (1, 1), (7, 4)], ids=str)
def test_an_operator_of_one_input(kind, attributes, shape):
    opset = {"Mish": 18, "Gelu": 20}.get(kind, 17)
    if kind == "ReduceSum":
        made = [node("Constant", "", "axes", value_ints=[1]), node(kind, "x axes", "y")]
    else:
        made = [node(kind, "x", "y", **attributes)]

    assert_near(model(made, {"x": shape}, ["y"], opset=opset), scale=2.0, near=2e-6)


@pytest.mark.parametrize("kind", ["Log", "Sqrt"])
def test_an_operator_of_positive_numbers(kind):
    made = [node("Abs", "x", "a"), node(kind, "a", "y")]

    assert_near(model(made, {"x": (3, 7)}, ["y"]))


BROADCAST = [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 4), (3, 1)), ((3, 5), (5,)), ((3, 5), (3, 1)),
             ((2, 3, 5), (3, 1)), ((2, 3, 5), (2, 1, 5)), ((2, 3, 4), (1, 3, 1)), ((3, 5), ()),
             ((1, 5), (3, 1))]  # fmt: skip


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Div", "Min", "Max", "PRelu", "Mean", "Sum"])
@pytest.mark.parametrize(("shape", "other"), BROADCAST, ids=str)
def test_an_operator_of_two_inputs_that_are_broadcast(kind, shape, other):
    if kind == "PRelu" and (shape, other) == BROADCAST[-1]:
        other = (1, 5)  # it broadcasts one way

    assert_near(model([node(kind, "x w", "y")], {"x": shape}, ["y"], {"w": numbers(*other)}))


@pytest.mark.parametrize("kind", ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"])
def test_a_comparison_and_what_it_chooses(kind):
    made = [
        node("Round", "x", "r"), node(kind, "r w", "c"), node("Not", "c", "n"),
        node("Greater", "x w", "g"), node("And", "c g", "a"), node("Or", "c g", "o"),
        node("Xor", "c g", "e"), node("Cast", "a", "af", to=1), node("Cast", "o", "of", to=1),
        node("Cast", "e", "ef", to=1), node("Where", "n x w", "y"),
        node("Cast", "x", "b", to=9), node("Cast", "b", "bf", to=1),
    ]  # fmt: skip

    assert_near(
        model(made, {"x": (3, 5)}, ["y", "af", "of", "ef", "bf"], {"w": np.round(numbers(5))})
    )


@pytest.mark.parametrize("power", [-1.0, 0.5, 1.0, 2.0, 3.0])
def test_a_power(power):
    made = [node("Abs", "x", "a"), node("Pow", "a p", "y")]

    assert_near(model(made, {"x": (5,)}, ["y"], {"p": np.float32(power)}))


@pytest.mark.parametrize("attributes", [{}, {"select_last_index": 1}, {"axis": 2, "keepdims": 0}])
@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
def test_the_place_of_the_highest_number(kind, attributes):
    made = [
        node("Round", "x", "r"), node(kind, "r", "p", **{"axis": 1, **attributes}),
        node("Cast", "p", "y", to=1),
    ]  # fmt: skip

    assert_near(model(made, {"x": (6, 9)}, ["y"]), 200)


@EXAMPLES
@given(widths=st.lists(SIZES, min_size=2, max_size=4), seed=st.integers(0, 99),
       activation=st.sampled_from(["Relu", "Tanh", "Sigmoid", "Elu", "Softplus"]))  # fmt: skip
def test_perceptrons_of_all_widths(widths, seed, activation):
    weights, made, last = {}, [], "x"
    for layer, (wide, width) in enumerate(pairwise(widths)):
        weights[f"w{layer}"] = numbers(wide, width, seed=seed) / np.float32(wide**0.5)
        weights[f"b{layer}"] = numbers(width, seed=seed + 1)
        made += [node("Gemm", f"{last} w{layer} b{layer}", f"h{layer}"),
                 node(activation, f"h{layer}", f"a{layer}")]  # fmt: skip
        last = f"a{layer}"

    assert_near(model(made, {"x": widths[:1]}, [last], weights), seed=seed)


@EXAMPLES
@given(batch=st.integers(1, 3), rows=st.integers(1, 9), inner=SIZES, columns=SIZES,
       has_weights=st.booleans(), is_beside=st.booleans())  # fmt: skip
def test_products_of_all_sizes(batch, rows, inner, columns, has_weights, is_beside):
    shapes = {"x": (batch, rows, inner)}
    weights = {"b": numbers(columns), "c": numbers(rows, 1)}
    if has_weights:
        weights["w"] = numbers(inner, columns)
    else:
        shapes["w"] = (batch, inner, columns)
    made = [node("MatMul", "x w", "m"), node("Add", "m b" if is_beside else "m c", "y"),
            node("Tanh", "y", "z")]  # fmt: skip

    assert_near(model(made, shapes, ["y", "z"], weights), scale=inner**-0.25, near=3e-6)


@EXAMPLES
@given(shape=st.lists(st.integers(1, 6), min_size=2, max_size=3), data=st.data())
def test_numbers_that_are_moved(shape, data):
    rank = len(shape) + 1
    order = data.draw(st.permutations(range(1, rank)))
    axis = data.draw(st.integers(1, rank - 1))
    size = shape[axis - 1]
    start, end = (data.draw(st.integers(-size - 1, size + 1)) for _ in range(2))
    step = data.draw(st.sampled_from([-2, -1, 1, 2, 3]))
    picked = data.draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=9))
    first = data.draw(st.integers(0, size))
    weights = {
        "starts": np.int64([start]), "ends": np.int64([end]), "axes": np.int64([axis]),
        "steps": np.int64([step]), "picked": np.int64(picked),
        "sizes": np.int64([first, size - first]),
        "wide": np.int64([1, *shape]), "times": np.int64([1] * (rank - 1) + [2]),
    }  # fmt: skip
    made = [
        node("Transpose", "x", "t", perm=[0, *order]), node("Gather", "x picked", "g", axis=axis),
        node("Split", "x sizes", "p q", axis=axis), node("Concat", "q x p", "c", axis=axis),
        node("Tile", "x times", "r"), node("Expand", "x wide", "e"),
        node("Transpose", "g", "k", perm=[0, *order]),
    ]  # fmt: skip
    outputs = ["t", "g", "c", "r", "e", "k"]
    if len(range(*slice(start, end, step).indices(size))):
        made.append(node("Slice", "x starts ends axes steps", "s"))
        outputs.append("s")

    assert_near(model(made, {"x": tuple(shape)}, outputs, weights), 3, near=0)


def test_numbers_that_are_gathered_by_what_a_run_finds():
    made = [
        node("ArgMax", "x", "p", axis=1, keepdims=0),
        node("Gather", "w p", "y", axis=0),
        node("Cast", "p", "f", to=1),
    ]

    assert_near(model(made, {"x": (5,)}, ["y", "f"], {"w": numbers(5, 3)}), 100, near=0)


@EXAMPLES
@given(channels=st.integers(1, 4), filters=st.integers(1, 6), size=st.integers(3, 9),
       kernel=st.integers(1, 3), stride=st.integers(1, 2), pad=st.integers(0, 1),
       dilation=st.integers(1, 2), depthwise=st.booleans())  # fmt: skip
def test_convolutions(channels, filters, size, kernel, stride, pad, dilation, depthwise):
    if (kernel - 1) * dilation + 1 > size + 2 * pad:
        return
    groups = channels if depthwise else 1
    filters *= groups
    weights = {"w": numbers(filters, channels // groups, kernel, kernel), "b": numbers(filters)}
    made = [node("Conv", "x w b", "c", strides=[stride] * 2, pads=[pad] * 4, group=groups,
                 dilations=[dilation] * 2), node("Relu", "c", "y")]  # fmt: skip

    assert_near(model(made, {"x": (channels, size, size + 1)}, ["c", "y"], weights), 3, near=3e-6)


def test_a_convolution_of_one_dimension():
    weights = {"w": numbers(4, 3, 2), "b": numbers(4)}
    made = [node("Conv", "x w b", "y", strides=[2], pads=[1, 0])]

    assert_near(model(made, {"x": (3, 8)}, ["y"], weights))


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize(("kind", "gates"), [("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize("size", [3, 8])
def test_recurrent_operators(kind, gates, after, size):
    states = ["h", "c"] if kind == "LSTM" else ["h"]
    options = {"linear_before_reset": after} if kind == "GRU" else {}
    weights = {
        "w": numbers(1, gates * size, 5), "r": numbers(1, gates * size, size, seed=1),
        "b": numbers(1, 2 * gates * size, seed=2), "first": np.int64([0]),
        "axis": np.int64([1]),
    }  # fmt: skip
    made = [node("Unsqueeze", "x first", "xs"), *(node("Unsqueeze", f"{s} first", f"{s}s")
                                                  for s in states)]  # fmt: skip
    ends = " ".join(f"{s}o" for s in states)
    inputs = ["xs", "w", "r", "b", "", *(f"{s}s" for s in states)]
    made.append(helper.make_node(kind, inputs, ["ys", *ends.split()], hidden_size=size, **options))
    made += [node("Squeeze", f"{s}o first", f"{s}_out") for s in states]
    made += [node("Squeeze", "ys axis", "yy"), node("Squeeze", "yy first", "y")]
    shapes = {"x": (5,), **dict.fromkeys(states, (size,))}

    assert_near(model(made, shapes, ["y", *(f"{s}_out" for s in states)], weights))


@pytest.mark.parametrize("width", [3, 8])
def test_normalizations(width):
    weights = {"s": numbers(width), "b": numbers(width), "m": numbers(width),
               "v": np.abs(numbers(width)) + 1}  # fmt: skip
    made = [node("LayerNormalization", "x s b", "l"), node("BatchNormalization", "x s b m v", "n")]

    assert_near(model(made, {"x": (width,)}, ["l", "n"], weights), near=2e-6)


def test_nan_and_infinities_pass_as_in_onnxruntime_and_nan_has_one_form():
    made = [node("Mul", "x w", "m"), node("Add", "m x", "y"), node("Tanh", "x", "t")]
    strange = np.float32([[np.nan, np.inf, -np.inf, 0.0, 1e38]])
    strange.view(np.uint32)[0, 0] = 0xFFC0_1234
    data = model(made, {"x": (5,)}, ["y", "t"], {"w": np.float32([1, -1, 2, 0, 9])})
    found = answers(WASM, data, {"x": strange})

    for name, expected in answers(ONNXRUNTIME, data, {"x": strange}).items():
        assert np.array_equal(found[name], expected, equal_nan=True)
        bits = found[name].view(np.uint32)
        assert set(bits[np.isnan(found[name])].tolist()) == {0x7FC0_0000}


def test_what_no_input_decides_is_constant():
    made = [
        node("Shape", "x", "s"), node("Gather", "s zero", "n"), node("Unsqueeze", "n zero", "u"),
        node("Concat", "u minus", "w", axis=0), node("Reshape", "x w", "y"),
        node("Constant", "", "k", value_float=2.5), node("Mul", "y k", "z"),
        node("ConstantOfShape", "two", "o"), node("Add", "z o", "q"),
    ]  # fmt: skip
    weights = {"zero": np.int64([0]), "minus": np.int64([-1]), "two": np.int64([1, 6])}
    weights["zero"] = np.int64(0)
    made[2] = node("Reshape", "n one", "u")
    weights["one"] = np.int64([1])

    assert_near(model(made, {"x": (2, 3)}, ["q"], weights), near=0)


def test_operators_that_cannot_be_compiled_are_named_with_the_way_out():
    made = [node("TopK", "x k", "v i"), node("CumSum", "v one", "y")]
    data = model(made, {"x": (5,)}, ["y"], {"k": np.int64([3]), "one": np.int64(1)})

    with pytest.raises(
        ModelRejected, match='it has no CumSum, TopK; hosts run the model by backend="onnxruntime"'
    ):
        render(data)


@pytest.mark.parametrize(
    ("made", "weights", "text"),
    [
        ([node("Pow", "x p", "y")], {"p": np.float32(1.7)}, "its exponent is 1.7"),
        ([node("Cast", "x", "i", to=7), node("Cast", "i", "y", to=1)], {}, "casts to whole"),
        (
            [node("MatMul", "x v", "m0")]
            + [node("MatMul", f"m{layer} w", f"m{layer + 1}") for layer in range(5)]
            + [node("Identity", "m5", "y")],
            {"v": np.zeros((5, 2048), "f4"), "w": np.zeros((2048, 2048), "f4")},
            "a row takes .* multiply-adds, 16777216 at most",
        ),
    ],
    ids=["power", "cast", "work"],
)
def test_what_cannot_be_compiled_is_said_with_its_node(made, weights, text):
    with pytest.raises(ModelRejected, match=text) as caught:
        render(model(made, {"x": (5,)}, ["y"], weights))

    assert 'hosts run the model by backend="onnxruntime"' in str(caught.value)


def test_each_translated_operator_passes_vetting_too():
    from arkml.policies.operators import RULES

    assert TRANSLATIONS.keys() <= RULES.keys()


def test_a_model_of_several_rows_at_once_is_refused():
    made = helper.make_graph(
        [node("MatMul", "x w", "y")], "policy", [port("x", 4, 3)], [port("y", 4, 2)],
        [numpy_helper.from_array(numbers(3, 2), "w")],
    )  # fmt: skip
    sets = [helper.make_opsetid("", 17)]
    data = helper.make_model(made, opset_imports=sets, ir_version=8).SerializeToString()

    with pytest.raises(ModelRejected, match="takes 4 rows at once, and not one"):
        render(data)


def test_bytes_that_are_no_model_are_refused_as_everywhere():
    with pytest.raises(ModelRejected):
        render(b"no model")


def test_a_weight_of_float64_is_refused():
    graph = onnx.load_from_string(model([node("Cast", "w", "y", to=1), node("Add", "x y", "z")],
                                        {"x": (2,)}, ["z"], {"w": np.zeros(2)}))  # fmt: skip

    with pytest.raises(ModelRejected, match="weight 'w': numbers of float64"):
        render(graph.SerializeToString())
