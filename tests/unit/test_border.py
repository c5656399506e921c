"""Models whose graphs have other types, or their rows elsewhere, than the host."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.unit import policy_models as build

from arkml.errors import InvalidArguments, ModelRejected
from arkml.limits import Limits
from arkml.policies.model_cache import ModelCache
from arkml.policies.onnx_model import OnnxFile

RANDOM = np.random.default_rng(3)
WEIGHTS = RANDOM.standard_normal((8, 2)).astype(np.float32)
FEATURES = RANDOM.standard_normal((7, 8)).astype(np.float32)


def typed(name, kind, *shape):
    return helper.make_tensor_value_info(name, kind, shape)


def integers(name, *values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def perceptron(batch, *, extra=()):
    """actions = tanh(flatten(obs) @ w), as torch exports it for one example."""
    nodes = [
        build.node("Flatten", "obs", "flat"),
        build.node("Gemm", "flat w", "h"),
        build.node("Tanh", "h", "actions"),
        *extra,
    ]
    outputs = [build.port("actions", batch, 2)]
    outputs += [build.port("value", batch, 1)] if extra else []
    weights = [build.weight("w", WEIGHTS), build.weight("v", WEIGHTS[:, :1])]
    return build.model(nodes, [build.port("obs", batch, 8)], outputs, weights)


def loaded(data, outputs=None):
    return ModelCache().onnx(data).load(outputs)


def reshaped(batch):
    """actions = obs @ w by shapes that hold the size of the batch."""
    nodes = [
        build.node("Reshape", "obs wide", "a"),
        build.node("MatMul", "a w", "b"),
        build.node("Reshape", "b narrow", "actions"),
    ]
    return build.model(
        nodes,
        [build.port("obs", batch, 8)],
        [build.port("actions", batch, 2)],
        [build.weight("w", WEIGHTS), integers("wide", batch, 1, 8), integers("narrow", batch, -1)],
    )


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("make", [perceptron, reshaped])
def test_a_fixed_batch_is_opened(make, batch):
    model = loaded(make(batch))
    acting = build.acted(build.load(make(batch)), FEATURES)
    expected = FEATURES @ WEIGHTS

    assert model.block is None
    assert np.allclose(acting, np.tanh(expected) if make is perceptron else expected, atol=1e-6)


@pytest.mark.parametrize("batch", [1, 4])
def test_a_fixed_batch_in_a_shape_that_copies_nothing_is_opened(batch):
    nodes = [
        build.node("MatMul", "obs w", "a"),
        build.node("Reshape", "a pairs", "b", allowzero=1),
        build.node("ReduceMax", "b", "actions", axes=[2], keepdims=0),
    ]
    pairs = integers("pairs", batch, 2, 1)
    data = build.model(
        nodes,
        [build.port("obs", batch, 8)],
        [build.port("actions", batch, 2)],
        [build.weight("w", WEIGHTS), pairs],
    )

    assert loaded(data).block is None
    assert np.allclose(build.acted(build.load(data), FEATURES), FEATURES @ WEIGHTS, atol=1e-5)


@pytest.mark.parametrize(
    "nodes",
    [
        [("Concat", "obs obs", "a", {"axis": 0}), ("Slice", "a from to", "actions", {})],
        [("ReduceMean", "obs", "mean", {"axes": [0]}), ("Sub", "obs mean", "actions", {})],
        [("MatMul", "mix obs", "actions", {})],
        [("Softmax", "obs", "actions", {"axis": 0})],
        [("Add", "obs own", "actions", {})],
    ],
    ids=lambda nodes: nodes[0][0],
)
def test_a_fixed_batch_stays_where_rows_depend_on_others(nodes):
    made = [build.node(name, inputs, to, **given) for name, inputs, to, given in nodes]
    weights = [
        build.weight("mix", RANDOM.standard_normal((4, 4))),
        build.weight("own", RANDOM.standard_normal((4, 3))),
        integers("from", 2),
        integers("to", 6),
    ]
    ports = [build.port("obs", 4, 3)], [build.port("actions", 4, 3)]
    model = loaded(build.model(made, *ports, weights))

    assert model.block == 4


CLIP = ("Max", "size one", "most", {})
CLIPPED = {
    "norm of all": [("ReduceL2", "obs", "size", {}), CLIP, ("Div", "obs most", "actions", {})],
    "norm in one axis": [
        ("ReduceL2", "obs", "size", {"axes": [0]}), CLIP, ("Div", "obs most", "actions", {}),
    ],
    "first row": [
        ("Slice", "obs from to", "first", {}), ("ReduceL2", "first", "size", {"axes": [1]}), CLIP,
        ("Div", "obs most", "actions", {}),
    ],
    "sum up to here": [
        ("CumSum", "obs from", "size", {}), CLIP, ("Div", "obs most", "actions", {}),
    ],
    "softmax": [
        ("Softmax", "obs", "soft", {"axis": 0}), ("Div", "soft one", "size", {}),
        ("Sub", "obs size", "actions", {}),
    ],
    "maximum": [("ReduceMax", "obs", "size", {}), CLIP, ("Div", "obs most", "actions", {})],
    "the other way round": [
        ("Slice", "obs end start from back", "size", {}), CLIP, ("Div", "obs most", "actions", {}),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "most"),
    [(k, m) for k in CLIPPED for m in (30.0, 1e6) if (k, m) != ("the other way round", 1e6)],
)
def test_a_batch_of_one_stays_where_large_numbers_of_other_rows_count(kind, most):
    made = [build.node(name, inputs, to, **given) for name, inputs, to, given in CLIPPED[kind]]
    weights = [
        build.weight("one", most),
        *(integers(n, v) for n, v in (("from", 0), ("to", 1), ("end", -1), ("back", -1))),
        integers("start", -(1 << 40)),
    ]
    ports = [build.port("obs", 1, 3)], [build.port("actions", 1, 3)]
    data = build.model(made, *ports, weights)
    features = np.float32([[1, 2, 3], [4e7, 5e7, 6e7], [0, 1, -1], [200, 300, 10]])
    policy = build.load(data, 3, 3)
    alone = [build.acted(policy, features[row : row + 1])[0] for row in range(4)]

    assert loaded(data).block == 1
    assert np.array_equal(build.acted(policy, features), alone)


def test_a_fixed_batch_is_opened_where_rows_are_reduced_each_by_itself():
    nodes = [
        build.node("ReduceL2", "obs", "size", axes=[1]),
        build.node(*CLIP[:3]),
        build.node("Div", "obs most", "clipped"),
        build.node("Softmax", "clipped", "soft", axis=1),
        build.node("Gather", "table index", "row", axis=0),
        build.node("Add", "soft row", "actions"),
    ]
    weights = [build.weight("one", 10.0), build.weight("table", np.eye(3)), integers("index", 2)]
    ports = [build.port("obs", 1, 3)], [build.port("actions", 1, 3)]

    assert loaded(build.model(nodes, *ports, weights)).block is None


def test_a_fixed_batch_with_indices_is_opened():
    nodes = [
        build.node("Cast", "obs", "index", to=TensorProto.INT64),
        build.node("Gather", "table index", "rows", axis=0),
        build.node("ReduceSum", "rows two", "actions", keepdims=0),
    ]
    ports = [build.port("obs", 1, 2)], [build.port("actions", 1, 4)]
    weights = [build.weight("table", RANDOM.standard_normal((9, 4))), integers("two", 1)]
    data = build.model(nodes, *ports, weights)

    assert loaded(data).block is None


def test_outputs_that_are_not_used_are_not_computed_and_do_not_fix_the_batch():
    mixing = [build.node("ReduceMean", "h", "m"), build.node("Expand", "m one", "value")]
    data = perceptron(1, extra=mixing)
    model = onnx.ModelProto.FromString(data)
    model.graph.initializer.append(integers("one", 1, 1))
    file = ModelCache().onnx(model.SerializeToString())

    assert file.load(["actions"]).block is None
    assert [port.name for port in file.load(["actions"]).outputs] == ["actions"]
    assert file.load(None).block == 1


def test_an_output_that_is_a_weight_is_a_row():
    model = onnx.ModelProto.FromString(perceptron(1))
    model.graph.initializer.append(build.weight("log_std", WEIGHTS[:2, 0]))
    model.graph.output.append(typed("log_std", TensorProto.FLOAT, 2))
    policy = loaded(model.SerializeToString())

    assert [(port.name, port.shape) for port in policy.outputs] == [
        ("actions", (2,)),
        ("log_std", (2,)),
    ]


@pytest.mark.parametrize(
    ("kind", "type_", "atol"),
    [(TensorProto.FLOAT16, np.float16, 2e-2), (TensorProto.DOUBLE, np.float64, 1e-6)],
)
def test_other_floats_are_cast_at_the_border(kind, type_, atol):
    data = build.model(
        [build.node("MatMul", "obs w", "actions")],
        [typed("obs", kind, "N", 8)],
        [typed("actions", kind, "N", 2)],
        [numpy_helper.from_array(WEIGHTS.astype(type_), "w")],
    )
    acting = build.acted(build.load(data, 8, 2), FEATURES)

    assert np.allclose(acting, FEATURES @ WEIGHTS, atol=atol)


@pytest.mark.parametrize("kind", [TensorProto.INT64, TensorProto.INT32])
def test_whole_numbers_are_cast_at_the_border(kind):
    data = build.model(
        [
            build.node("Cast", "obs", "real", to=TensorProto.FLOAT),
            build.node("MatMul", "real w", "scores"),
            build.node("ArgMax", "scores", "chosen", axis=1, keepdims=0),
            build.node("Cast", "chosen", "action", to=kind),
        ],
        [typed("obs", kind, "N", 8)],
        [typed("action", kind, "N")],
        [build.weight("w", WEIGHTS)],
    )
    features = np.trunc(10 * FEATURES)
    acting = build.acted(build.load(data, 8, 1), features)

    assert acting[:, 0].tolist() == (features @ WEIGHTS).argmax(axis=1).tolist()


def pixels(kind, *nodes):
    """actions = what `nodes` make of obs, which is of small integers."""
    made = [build.node(name, inputs, to, **given) for name, inputs, to, given in nodes]
    return build.model(
        made,
        [typed("obs", kind, "N", 8)],
        [build.port("actions", "N", 2)],
        [build.weight("w", WEIGHTS), integers("shape", -1, 8)],
    )


CAST = ("Cast", "moved", "real", {"to": TensorProto.FLOAT})
PRODUCT = ("MatMul", "real w", "actions", {})


@pytest.mark.parametrize(
    "kind", [TensorProto.UINT8, TensorProto.INT8, TensorProto.UINT16, TensorProto.INT16]
)
def test_small_whole_numbers_are_cast_at_the_border(kind):
    moving = ("Reshape", "obs shape", "moved", {})
    features = np.clip(np.trunc(40 * FEATURES), 0, 127)
    acting = build.acted(build.load(pixels(kind, moving, CAST, PRODUCT), 8, 2), features)

    assert np.allclose(acting, features @ WEIGHTS, atol=1e-4)


def test_arithmetic_of_small_whole_numbers_is_refused():
    adding = ("Add", "obs obs", "moved", {})

    with pytest.raises(ModelRejected, match="it is uint8"):
        build.load(pixels(TensorProto.UINT8, adding, CAST, PRODUCT), 8, 2)


def recurrent(
    operator, layers, batch, *, hidden=3, names=("h_in", "h_out"), width=4, is_reshaped=False
):
    """
    Layers of an LSTM, GRU or RNN with the batch behind the layers, as torch exports them.

    `is_reshaped` as by its newer exporter, with a Reshape to a shape that holds the batch.
    """
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    states = ["h", "c"] if operator == "LSTM" else ["h"]
    nodes = [build.node("Unsqueeze", "obs zero", "x0")]
    weights = [integers("zero", 0), integers("split", *[1] * layers)]
    random = np.random.default_rng(7)
    inputs = [build.port("obs", batch, width)]
    outputs = [build.port("actions", batch, hidden)]
    for state in states:
        source, target = (name.replace("h", state) for name in names)
        inputs.append(build.port(source, layers, batch, hidden))
        outputs.append(build.port(target, layers, batch, hidden))
        parts = " ".join(f"{state}{layer}" for layer in range(layers))
        nodes.append(build.node("Split", f"{source} split", parts, axis=0))
    for layer in range(layers):
        size = width if layer == 0 else hidden
        weights += [
            build.weight(f"W{layer}", random.standard_normal((1, gates * hidden, size))),
            build.weight(f"R{layer}", random.standard_normal((1, gates * hidden, hidden))),
            build.weight(f"B{layer}", random.standard_normal((1, 2 * gates * hidden))),
        ]
        inputs_of = [f"x{layer}", f"W{layer}", f"R{layer}", f"B{layer}", ""]
        inputs_of += [f"{state}{layer}" for state in states]
        results = [f"y{layer}", *(f"{state}n{layer}" for state in states)]
        nodes.append(helper.make_node(operator, inputs_of, results, hidden_size=hidden))
        if is_reshaped:
            nodes.append(build.node("Transpose", f"y{layer}", f"t{layer}", perm=[0, 2, 1, 3]))
            nodes.append(build.node("Reshape", f"t{layer} merged", f"x{layer + 1}"))
        else:
            nodes.append(build.node("Squeeze", f"y{layer} one", f"x{layer + 1}"))
    weights += [integers("one", 1)]
    weights += [integers("merged", 1, batch, hidden)] if is_reshaped else []
    nodes.append(build.node("Squeeze", f"x{layers} zero", "actions"))
    for state in states:
        target = names[1].replace("h", state)
        last = [f"{state}n{layer}" for layer in range(layers)]
        nodes.append(helper.make_node("Concat", last, [target], axis=0))
    return build.model(nodes, inputs, outputs, weights)


def played(data, features):
    """The actions that onnxruntime gives row by row for steps of agents: [steps, n, hidden]."""
    session = onnxruntime.InferenceSession(data)
    rest = [meta for meta in session.get_inputs() if meta.name != "obs"]
    answers = np.zeros((*features.shape[:2], 3), np.float32)
    for agent in range(features.shape[1]):
        states = {meta.name: np.zeros((meta.shape[0], 1, 3), np.float32) for meta in rest}
        for step in range(len(features)):
            results = session.run(None, {"obs": features[step, agent : agent + 1], **states})
            answers[step, agent] = results[0]
            states = dict(zip(states, results[1:], strict=True))
    return answers


@pytest.mark.parametrize("batch", [1, "N"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
def test_states_whose_batch_is_behind_the_layers_are_kept(operator, layers, batch):
    data = recurrent(operator, layers, batch)
    features = RANDOM.standard_normal((4, 5, 4)).astype(np.float32)
    policy = build.load(data, 4, 3)
    answers = [build.acted(policy, rows) for rows in features]

    assert np.allclose(answers, played(data, features), atol=1e-5)
    assert loaded(data).block is None


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
def test_a_fixed_batch_behind_the_steps_of_a_reshape_is_opened(operator, layers, batch):
    data = recurrent(operator, layers, batch, is_reshaped=True)
    features = RANDOM.standard_normal((4, 5, 4)).astype(np.float32)
    policy = build.load(data, 4, 3)
    answers = [build.acted(policy, rows) for rows in features]
    alone = recurrent(operator, layers, 1)

    assert np.allclose(answers, played(alone, features), atol=1e-5)
    assert loaded(data).block is None


@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
def test_states_without_names_are_found_by_the_operator_that_has_them(operator):
    data = recurrent(operator, 2, 1, names=("onnx::h_1", "onnx::h_7"))
    features = RANDOM.standard_normal((3, 5, 4)).astype(np.float32)
    policy = build.load(data, 4, 3)

    assert np.allclose(
        [build.acted(policy, rows) for rows in features], played(data, features), atol=1e-5
    )


@pytest.mark.parametrize(("operator", "gates"), [("GRU", 3), ("RNN", 1)])
def test_states_of_one_shape_without_names_are_told_apart_by_their_operators(operator, gates):
    random = np.random.default_rng(9)
    nodes = [build.node("Unsqueeze", "obs zero", "x0")]
    weights = [integers("zero", 0), integers("one", 1)]
    for layer, state, after in ((0, "onnx::4", "42"), (1, "onnx::5", "31")):
        weights += [
            build.weight(f"{kind}{layer}", random.standard_normal((1, gates * 3, 3)))
            for kind in "WR"
        ]
        given = [f"x{layer}", f"W{layer}", f"R{layer}", "", "", state]
        nodes.append(helper.make_node(operator, given, [f"y{layer}", after], hidden_size=3))
        nodes.append(build.node("Squeeze", f"y{layer} one", f"x{layer + 1}"))
    nodes.append(build.node("Squeeze", "x2 zero", "actions"))
    inputs = [build.port(name, 1, "N", 3) for name in ("onnx::4", "onnx::5")]
    outputs = [build.port(name, 1, "N", 3) for name in ("31", "42")]  # the other way round
    data = build.model(
        nodes, [build.port("obs", "N", 3), *inputs], [build.port("actions", "N", 3), *outputs],
        weights,
    )  # fmt: skip
    policy = build.load(data, 3, 3)
    session = onnxruntime.InferenceSession(data)
    states = {name: np.zeros((1, 5, 3), np.float32) for name in ("onnx::4", "onnx::5")}
    for rows in RANDOM.standard_normal((4, 5, 3)).astype(np.float32):
        expected, second, first = session.run(None, {"obs": rows, **states})
        states = {"onnx::4": first, "onnx::5": second}

        assert np.allclose(build.acted(policy, rows), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("layers", "batch", "width"), [(2, 2, 4), (3, 3, 4), (2, 4, 2), (1, 4, 1), (4, 2, 2), (2, 2, 2)]
)
@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
def test_a_fixed_batch_is_told_from_layers_and_features(operator, layers, batch, width):
    data = recurrent(operator, layers, batch, width=width)
    features = RANDOM.standard_normal((4, 5, width)).astype(np.float32)
    policy = build.load(data, width, 3)
    answers = [build.acted(policy, rows) for rows in features]
    alone = recurrent(operator, layers, 1, width=width)

    assert np.allclose(answers, played(alone, features), atol=1e-5)
    assert loaded(data).block is None


def stacked(*nodes, batch=2):
    """A state of [batch, 2, 3] whose rows are first; actions and state are what `nodes` make."""
    made = [build.node(name, inputs, to, **given) for name, inputs, to, given in nodes]
    return build.model(
        made,
        [build.port("obs", batch, 3), build.port("h_in", batch, 2, 3)],
        [build.port("actions", batch, 3), build.port("h_out", batch, 2, 3)],
        [integers("one", 1), build.weight("w", [[1, 0, 0], [2, 1, 0], [0, 3, 1]])],
    )


SUM = ("ReduceSum", "h_out one", "actions", {"keepdims": 0})


def test_a_fixed_batch_before_as_many_layers_is_told():
    data = stacked(
        ("MatMul", "obs w", "seen", {}),
        ("Unsqueeze", "seen one", "wide", {}),
        ("Add", "h_in wide", "h_out", {}),
        SUM,
    )
    features = RANDOM.standard_normal((5, 3)).astype(np.float32)
    policy = build.load(data, 3, 3)
    seen = features @ np.array([[1, 0, 0], [2, 1, 0], [0, 3, 1]], np.float32)

    assert np.allclose(build.acted(policy, features), 2 * seen, atol=1e-4)
    assert np.allclose(build.acted(policy, features), 4 * seen, atol=1e-4)


def test_a_batch_that_may_be_the_layers_is_refused_with_the_way_out():
    data = stacked(("ReduceMean", "h_in", "m", {}), ("Add", "h_in m", "h_out", {}), SUM)

    with pytest.raises(
        ModelRejected, match=r"'h_in', \[2, 2, 3\], may lie on its axis 0 or 1: exp"
    ):
        OnnxFile(data, Limits(), seconds=2.0)


def without_batch(*, mixes):
    """actions of shape [2] for one observation of shape [8]."""
    nodes = [build.node("MatMul", "obs w", "h"), build.node("Tanh", "h", "actions")]
    if mixes:  # a sum over all that there is
        nodes = [
            build.node("MatMul", "obs w", "h"),
            build.node("ReduceSum", "h", "s", keepdims=0),
            build.node("Div", "h s", "actions"),
        ]
    return build.model(
        nodes, [build.port("obs", 8)], [build.port("actions", 2)], [build.weight("w", WEIGHTS)]
    )


@pytest.mark.parametrize("mixes", [False, True])
def test_a_model_without_a_batch_runs_for_any_number_of_rows(mixes):
    data = without_batch(mixes=mixes)
    expected = FEATURES @ WEIGHTS
    expected = expected / expected.sum(axis=1, keepdims=True) if mixes else np.tanh(expected)

    assert np.allclose(build.acted(build.load(data, 8, 2), FEATURES), expected, atol=1e-5)
    assert loaded(data).block == (1 if mixes else None)


def test_a_choice_of_one_observation_is_a_row():
    data = build.model(
        [build.node("MatMul", "obs w", "h"), build.node("ArgMax", "h", "action", keepdims=0)],
        [build.port("obs", 8)],
        [typed("action", TensorProto.INT64)],
        [build.weight("w", WEIGHTS)],
    )
    acting = build.acted(build.load(data, 8, 1), FEATURES)

    assert acting[:, 0].tolist() == (FEATURES @ WEIGHTS).argmax(axis=1).tolist()


def test_two_open_dimensions_are_refused_with_the_way_out():
    data = build.model(
        [build.node("Identity", "obs", "actions")],
        [build.port("obs", "N", "T")],
        [build.port("actions", "N", "T")],
    )

    with pytest.raises(ModelRejected, match="dimensions 0 and 1 have no fixed size: export it"):
        OnnxFile(data, Limits(), seconds=2.0)


def test_outputs_without_rows_do_not_act():
    data = build.model(
        [build.node("MatMul", "obs w", "h"), build.node("ReduceMean", "h", "actions")],
        [build.port("obs", "N", 8)],
        [build.port("actions", 1, 1)],
        [build.weight("w", WEIGHTS)],
    )

    with pytest.raises(
        InvalidArguments, match="acts: 'actions' has no row for each row of the inputs"
    ):
        build.load(data, 8, 1)
