import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from arkml.errors import ModelRejected, SnapshotTooLarge
from arkml.limits import Limits
from arkml.policies.operators.call import ROWS, ElementType, Tensor
from arkml.policies.vetting import examine, vet

LIMITS = Limits()
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def node(operator, inputs, outputs="y", **attributes):
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def port(name, *shape):
    return helper.make_tensor_value_info(name, FLOAT, shape)


def weight(name, values, dtype=np.float32):
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def proto(nodes, weights=(), *, inputs=None, outputs=None, opset=17, ir_version=8):
    inputs = inputs or [port("x", "N", 8)]
    outputs = outputs or [helper.make_tensor_value_info("y", FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def examined(nodes, weights=(), **options):
    return examine(proto(nodes, weights, **options).SerializeToString(), LIMITS)


def size(nodes, weights=(), **options):
    """The shape of y."""
    return examined(nodes, weights, **options).tensors["y"].shape


PERCEPTRON = proto(
    [node("Gemm", "x w b", "h"), node("Tanh", "h")],
    [weight("w", np.ones((8, 3))), weight("b", np.ones(3))],
)


def test_a_perceptron_passes_and_its_sizes_are_known():
    vetted = examine(PERCEPTRON.SerializeToString(), LIMITS)

    assert vetted.tensors["y"] == Tensor(ElementType.FLOAT, (ROWS, 3))
    assert vetted.tensors["w"] == Tensor(ElementType.FLOAT, (8, 3), stored=True)


def test_the_cost_of_a_row_is_what_one_works_out_by_hand():
    cost = examine(PERCEPTRON.SerializeToString(), LIMITS).cost

    assert cost.row_bytes == 4 * (3 + 3)
    assert cost.fixed_bytes == cost.fixed_work == 0
    # Products, and eight for each element read or written; the 27 weights are shared by all rows.
    assert cost.row_work == -(-(8 * 3 * ROWS + 8 * ((8 + 3) * ROWS + 27)) // ROWS) + 8 * (3 + 3)


def test_the_model_that_comes_back_claims_no_inner_sizes():
    model = proto([node("Tanh", "x", "h"), node("Exp", "h")])
    model.graph.value_info.append(port("h", "N", 1 << 40))

    assert not vet(model.SerializeToString(), LIMITS).graph.value_info


def test_old_files_that_list_weights_as_inputs_pass():
    inputs = [port("obs:0", "N", 2), port("w:0", 2, 3)]
    model = proto(
        [node("MatMul", "obs:0 w:0", "actions:0")],
        [weight("w:0", np.ones((2, 3)))],
        inputs=inputs,
        outputs=[port("actions:0", "N", 3)],
        opset=9,
        ir_version=3,
    )

    vetted = examine(model.SerializeToString(), LIMITS)

    assert vetted.tensors["actions:0"].shape == (ROWS, 3)


def test_a_model_as_ml_agents_exports_it_passes():
    inputs = [port("obs_0", "batch", 6), port("action_masks", "batch", 2)]
    inputs.append(port("recurrent_in", "batch", 1, 8))
    zero = weight("zero", [0], np.int64)
    weights = [weight("w", np.ones((1, 16, 6))), weight("r", np.ones((1, 16, 4))), zero]
    weights += [weight("m", np.ones((4, 2))), weight("s", np.ones(2)), weight("one", [1], np.int64)]
    weights += [weight("version_number", [3.0]), weight("memory_size", [8], np.int64)]
    nodes = [
        node("Transpose", "recurrent_in", "memory", perm=[1, 0, 2]),
        node("Split", "memory", "h0 c0", axis=2),
        node("Unsqueeze", "obs_0 zero", "steps"),
        helper.make_node(
            "LSTM", ["steps", "w", "r", "", "", "h0", "c0"], ["", "h", "c"], hidden_size=4
        ),
        node("Concat", "h c", "both", axis=2),
        node("Transpose", "both", "recurrent_out", perm=[1, 0, 2]),
        node("Squeeze", "h zero", "flat"),
        node("MatMul", "flat m", "mean"),
        node("Mul", "mean action_masks", "masked"),
        node("RandomNormalLike", "mean", "noise"),
        node("Mul", "noise s", "scaled"),
        node("Add", "masked scaled", "continuous_actions"),
        node("ArgMax", "mean", "discrete_actions", axis=1),
    ]
    names = ["continuous_actions", "recurrent_out", "version_number", "memory_size"]
    kinds = [FLOAT, FLOAT, FLOAT, INT64]
    outputs = [
        helper.make_tensor_value_info(name, kind, None)
        for name, kind in zip([*names, "discrete_actions"], [*kinds, INT64], strict=True)
    ]

    vetted = examined(nodes, weights, inputs=inputs, outputs=outputs)

    assert vetted.tensors["recurrent_out"].shape == (ROWS, 1, 8)
    assert vetted.tensors["continuous_actions"].shape == (ROWS, 2)
    assert vetted.tensors["discrete_actions"] == Tensor(ElementType.INT64, (ROWS, 1))


def test_shapes_that_exporters_compute_in_the_graph_are_followed():
    weights = [
        weight("zero", 0, np.int64),
        weight("axis", [0], np.int64),
        weight("rest", [-1], np.int64),
        weight("heads", 2, np.int64),
    ]
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "batch"),
        node("Unsqueeze", "batch axis", "batch_1"),
        node("Shape", "x", "width", start=1),
        node("Div", "width heads", "half"),
        node("Concat", "batch_1 half rest", "target", axis=0),
        node("Reshape", "x target"),
    ]

    assert size(nodes, weights) == (ROWS, 4, 2)


def test_a_state_of_zeros_for_the_batch_can_be_expanded():
    weights = [
        weight("zeros", np.zeros((1, 1, 4))),
        weight("wanted_tail", [4], np.int64),
        weight("wanted_head", [1], np.int64),
        weight("minus", [-1, -1, -1], np.int64),
        weight("ones", [1, 1, 1], np.int64),
    ]
    nodes = [
        node("Shape", "x", "batch", end=1),
        node("Concat", "wanted_head batch wanted_tail", "wanted", axis=0),
        node("Equal", "wanted minus", "unknown"),
        node("Where", "unknown ones wanted", "sizes"),
        node("Expand", "zeros sizes"),
    ]

    assert size(nodes, weights) == (1, ROWS, 4)


def test_an_input_without_features_passes():
    assert size([node("Tanh", "x")], inputs=[port("x", "N", 0)]) == (ROWS, 0)


def test_a_graph_that_fits_one_row_only_becomes_a_model_of_batch_one():
    weights = [weight("one_row", [1, 8], np.int64)]
    vetted = examined([node("Reshape", "x one_row")], weights)

    assert vetted.tensors["y"].shape == (1, 8)
    assert vetted.model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 1


def test_a_graph_that_multiplies_rows_with_rows_gets_them_one_by_one():
    vetted = examined([node("Transpose", "x", "t"), node("MatMul", "x t")])

    assert vetted.tensors["y"].shape == (1, 1)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("divisor", [0, -1])
def test_integers_are_divided_only_by_positive_constants(dtype, divisor):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [node("Cast", "x", "i", to=kind), node("Div", "i d", "q"), node("Cast", "q", to=1)]

    assert size(nodes, [weight("d", [2], dtype)]) == (ROWS, 8)
    with pytest.raises(ModelRejected, match=r"node 'q' \(Div\): Div on INT"):
        examined(nodes, [weight("d", [divisor], dtype)])


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([node("NonZero", "x")], r"node 'y' \(NonZero\): the operator is not allowed"),
        ([node("Tanh", "x", domain="a.b")], r"node 'y' \(Tanh\): operators of 'a.b'"),
        ([node("Add", "x z")], r"node 'y' \(Add\): nothing before it makes its input 'z'"),
        ([node("Cast", "x", to=8)], r"node 'y' \(Cast\): element type 8 is not allowed"),
        ([node("Cast", "x", to=2)], "it is uint8, and quantized models are not supported"),
        ([node("Tanh", "x", "y z")], r"node 'y' \(Tanh\): it has 2 outputs"),
        ([node("Tanh", "x", "q")], "output 'y': no node makes it"),
        ([node("Tanh", "x")] * 2_001, "2001 nodes"),
        ([node("Sum", "x " * 120)] * 1_900, "229900 inputs and outputs together"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refusal_names_the_node_and_the_reason(nodes, reason):
    with pytest.raises(ModelRejected, match=reason):
        examined(nodes)


def test_a_graph_inside_of_a_node_is_refused_by_the_name_of_the_node():
    body = helper.make_graph([node("Tanh", "a", "b")], "body", [], [])
    model = proto([helper.make_node("Loop", ["x"], ["y"], name="forever", body=body)])

    with pytest.raises(ModelRejected, match=r"node 'forever' \(Loop\): the operator"):
        vet(model.SerializeToString(), LIMITS)


def test_a_weight_in_another_file_is_refused():
    outside = TensorProto(name="w", data_type=FLOAT, dims=[8], data_location=1)
    outside.external_data.add(key="location", value="w.bin")

    for model in (
        proto([node("Add", "x w")], [outside]),
        proto([node("Constant", "", "w", value=outside), node("Add", "x w")]),
    ):
        with pytest.raises(ModelRejected, match="weights in other files are not allowed"):
            vet(model.SerializeToString(), LIMITS)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dims": [-1]}, r"its shape \[-1\] is not allowed"),
        ({"dims": [1 << 40]}, "its shape"),
        ({"dims": [9]}, "32 bytes for 9 elements of FLOAT"),
        ({"data_type": 12}, "element type 12 is not allowed"),
        ({"float_data": [1.0]}, "32 bytes for 8 elements"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value),
)
def test_a_weight_that_lies_is_refused(change, reason):
    fields = {"name": "w", "data_type": FLOAT, "dims": [8], "raw_data": bytes(32)} | change
    model = proto([node("Add", "x w")], [TensorProto(**fields)])

    with pytest.raises(ModelRejected, match=f"initializer 'w': {reason}"):
        vet(model.SerializeToString(), LIMITS)


@pytest.mark.parametrize("shape", [(), ("N", "T"), ("N", -1), (0, 8), ("N", 1 << 40)], ids=str)
def test_an_input_needs_a_batch_and_known_features(shape):
    with pytest.raises(ModelRejected, match="input 'x'"):
        examined([node("Tanh", "x")], inputs=[port("x", *shape)])


def test_memory_is_bounded_before_a_run():
    fill = [node("ConstantOfShape", "s", "z"), node("ReduceSum", "z", "r"), node("Add", "x r")]

    with pytest.raises(ModelRejected, match=r"node 'z' .* too much memory"):
        examined(fill, [weight("s", [1 << 28], np.int64)])


def test_work_is_bounded_before_a_run():
    steps = [node("MatMul", f"t{i} w" if i else "x w", f"t{i + 1}") for i in range(300)]

    with pytest.raises(ModelRejected, match="take too long"):
        examined(
            [*steps, node("Tanh", "t300")],
            [weight("w", np.ones((1_024, 1_024)))],
            inputs=[port("x", "N", 1_024)],
        )


def test_what_is_no_model_is_refused_by_its_beginning():
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:f645da\nsize 1886682\n"

    with pytest.raises(ModelRejected, match=r"begins with b'version https://git-lfs.github.com/"):
        vet(pointer, LIMITS)


def test_a_model_larger_than_a_snapshot_is_refused():
    with pytest.raises(SnapshotTooLarge, match="larger than 10"):
        vet(PERCEPTRON.SerializeToString(), Limits(snapshot_bytes=10))


@given(
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=8),
    st.integers(0, 1 << 16),
)
def test_a_damaged_model_is_refused_or_parses_as_it_did(changes, cut):
    data = bytearray(PERCEPTRON.SerializeToString())
    for at, byte in changes:
        data[at % len(data)] = byte
    damaged = bytes(data[: max(1, cut % (2 * len(data)))])

    try:
        vetted = examine(damaged, LIMITS)
    except ModelRejected:
        return
    assert vetted.model.graph.node == ModelProto.FromString(damaged).graph.node
