"""Operators of exported policies: their sizes and results, and what is refused of them."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.unit import policy_models as build

from arkml.errors import ModelRejected
from arkml.limits import Limits
from arkml.policies.operators import RULES
from arkml.policies.operators.call import ROWS, grows
from arkml.policies.vetting import examine

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
FEATURES = np.random.default_rng(5).uniform(-0.9, 0.9, (5, 6)).astype(np.float32)


def node(operator, inputs, outputs="actions", **attributes):
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(operator, names, outputs.split(), **attributes)


def integers(name, *values, dtype=np.int64):
    return numpy_helper.from_array(np.array(values, dtype), name)


WEIGHTS = [
    build.weight("w", np.random.default_rng(6).standard_normal((6, 4))),
    build.weight("square", np.random.default_rng(7).standard_normal((6, 6))),
    build.weight("half", 0.5),
    build.weight("off_on", [0.0, 1.0]),
    numpy_helper.from_array(np.array(4, np.int64), "four"),
    numpy_helper.from_array(np.array(1, np.int64), "one"),
    integers("two", 2),
    integers("three", 3),
    integers("all", 6),
    integers("around", 0, 1, 0, 2),
    integers("behind", 1, 0),
    integers("last", 1),
    integers("minus", -1),
    integers("picked", 0, 5, 2),
    integers("many", 1 << 40),
    integers("bomb", 0, 1 << 40, 0, 1 << 40),
    integers("rows", 1, 0, 0, 0),
    integers("cut", 0, -1, 0, 0),
    integers("wide", 0, 6, 0, 6),
    integers("nothing", 0),
]


def model(nodes, *, kind=FLOAT, opset=18, inputs=None):
    nodes = [*nodes]
    outputs = [helper.make_tensor_value_info("actions", kind, None)]
    inputs = [build.port("obs", "N", 6)] if inputs is None else inputs
    graph = helper.make_graph(nodes, "g", inputs, outputs, WEIGHTS)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


CHOSEN = [node("ArgMax", "obs", "i", axis=1, keepdims=0)]
CASES = {
    **{
        name.lower(): [node(name, "obs")]
        for name in "Tan Asin Acos Atan Sinh Cosh Asinh Atanh".split()  # noqa: SIM905
    },
    "acosh": [node("Exp", "obs", "e"), node("Exp", "e", "s"), node("Acosh", "s")],
    "mod of floats": [node("Mod", "obs half", fmod=1)],
    "mod": [node("Cast", "obs", "i", to=INT64), node("Mod", "i three", "r"),
            node("Cast", "r", to=FLOAT)],
    "mod of a negative": [node("Cast", "obs", "i", to=INT64), node("Mod", "i two", "r", fmod=1),
                          node("Cast", "r", to=FLOAT)],
    "logsumexp": [node("ReduceLogSumExp", "obs last", keepdims=1)],
    "l1": [node("ReduceL1", "obs last", keepdims=1)],
    "logsum": [node("Abs", "obs", "a"), node("ReduceLogSum", "a last", keepdims=1)],
    "prod": [node("ReduceProd", "obs last", keepdims=1)],
    "sum of integers": [node("Cast", "obs", "i", to=INT64), node("ReduceSum", "i last", "r"),
                        node("Cast", "r", to=FLOAT)],
    **{
        f"{name} of integers": [
            node("Div", "obs half", "s"),
            node("Cast", "s", "i", to=INT64),
            node(name, "i last", "r"),
            node("Cast", "r", to=FLOAT),
        ]
        for name in ("ReduceProd", "ReduceMax", "ReduceMin")
    },
    "pad": [node("Pad", "obs around")],
    "pad with a value": [node("Pad", "obs around half", mode="constant")],
    "pad of an axis": [node("Pad", "obs behind - last")],
    "reflect": [node("Pad", "obs around", mode="reflect")],
    "edge": [node("Pad", "obs around", mode="edge")],
    "einsum": [node("Einsum", "obs w", equation="bi,ij->bj")],
    "einsum, implicit": [node("Einsum", "obs w", equation="bi,ij")],
    "einsum of rows": [node("Einsum", "obs obs", equation="bi,bj->bij")],
    "einsum of one": [node("Einsum", "obs", equation="bi->b")],
    "cumsum": [node("CumSum", "obs one")],
    "cumsum, back": [node("CumSum", "obs one", reverse=1, exclusive=1)],
    "trilu": [node("Unsqueeze", "obs last", "u"), node("Add", "u square", "s"),
              node("Trilu", "s", "t"), node("Flatten", "t")],
    "trilu, lower": [node("Unsqueeze", "obs last", "u"), node("Add", "u square", "s"),
                     node("Trilu", "s one", "t", upper=0), node("Flatten", "t")],
    "one hot": [*CHOSEN, node("OneHot", "i four off_on")],
    "one hot, first": [*CHOSEN, node("OneHot", "i four off_on", axis=1)],
    "topk": [node("TopK", "obs two", "actions places")],
    "topk, least": [node("TopK", "obs three", "actions places", largest=0)],
    "sort": [node("TopK", "obs all", "actions places")],
    "indices": [node("TopK", "obs two", "v places"), node("Cast", "places", to=FLOAT)],
    "gather elements": [node("TopK", "obs two", "v i"),
                        node("GatherElements", "obs i", axis=1)],
    "is nan": [node("IsNaN", "obs", "n"), node("Where", "n half obs")],
    "is inf": [node("IsInf", "obs", "n"), node("Where", "n half obs")],
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_sizes_and_results_are_those_of_onnxruntime(case):
    data = model(CASES[case])
    expected = onnxruntime.InferenceSession(data).run(["actions"], {"obs": FEATURES})[0]
    vetted = examine(data, Limits()).tensors["actions"]
    width = expected.size // len(FEATURES)
    acting = build.acted(build.load(data, 6, width, deterministic=True), FEATURES)

    assert [n // ROWS * 5 if grows(n) else n for n in vetted.shape] == [*expected.shape]
    assert np.allclose(acting, expected.reshape(len(FEATURES), -1), atol=1e-6)


def test_uniform_noise_is_drawn_anew():
    policy = build.load(model([node("RandomUniformLike", "obs")]), 6, 6)
    first, second = build.acted(policy, FEATURES), build.acted(policy, FEATURES)

    assert ((first >= 0) & (first <= 1)).all()
    assert not np.array_equal(first, second)


REFUSED = {
    "mod by a number of a run": ([node("Cast", "obs", "i", to=INT64), node("Mod", "i i")],
                                 "by a divisor that is not a constant"),
    "mod by zero": ([node("Cast", "obs", "i", to=INT64), node("Mod", "i nothing")], "by 0 or -1"),
    "mod by minus one": ([node("Cast", "obs", "i", to=INT64), node("Mod", "i minus")],
                         "by 0 or -1"),
    "mod of doubles": ([node("Cast", "obs", "d", to=11), node("Mod", "d d", fmod=1)],
                       "Mod on DOUBLE"),
    "mean of integers": ([node("Cast", "obs", "i", to=INT64), node("ReduceMean", "i last")],
                         "ReduceMean on INT64"),
    "most of no integers": ([node("Slice", "obs nothing nothing last", "n"),
                             node("Cast", "n", "i", to=INT64), node("ReduceMax", "i last")],
                            "ReduceMax on INT64"),
    "pad of 2^40": ([node("Pad", "obs bomb")], "too much memory|too large"),
    "pad that cuts": ([node("Pad", "obs cut")], "take elements away"),
    "reflect beyond": ([node("Pad", "obs wide", mode="reflect")], "pads 6 and 6 of 6 elements"),
    "pads of a run": ([node("Cast", "obs", "i", to=INT64), node("Pad", "obs i")], "at run time"),
    "one hot of 2^40": ([*CHOSEN, node("OneHot", "i many off_on")], "a depth of"),
    "one hot of nothing": ([*CHOSEN, node("OneHot", "i nothing off_on")], "a depth of 0"),
    "topk of 2^40": ([node("TopK", "obs many", "actions i")], "of 6 elements"),
    "topk of rows": ([node("TopK", "obs two", "actions i", axis=0)], "some rows of a batch"),
    "topk of a run": ([node("Cast", "obs", "k", to=INT64), node("TopK", "obs k", "actions i")],
                      "at run time"),
    "einsum of many indices": ([node("Einsum", "obs", equation="ab->abc")], "not supported"),
    "einsum with an ellipsis": ([node("Einsum", "obs w", equation="...i,ij->...j")],
                                "not supported"),
    "einsum of a diagonal": ([node("Einsum", "obs", equation="ii->i")], "not supported"),
    "einsum of other sizes": ([node("Einsum", "obs w", equation="bj,ij->bi")], "has the sizes"),
    "einsum of three": ([node("Einsum", "obs obs obs", equation="bi,bi,bi->b")], "3 tensors"),
    "cumsum of another axis": ([node("CumSum", "obs four")], "axis 4"),
    "trilu of a run": ([node("Cast", "obs", "i", to=INT64), node("Trilu", "w i")], "at run time"),
    "trilu of 2^40": ([node("Trilu", "obs many")], "the diagonal 1099511627776"),
    "trilu of a list": ([node("Trilu", "off_on")], r"Trilu on FLOAT of shape \[2\]"),
    "gather of more": ([node("Shape", "w", "s"), node("Expand", "three s", "i"),
                        node("GatherElements", "obs i", axis=1)], r"indices \[6, 4\] of \["),
    "gather at floats": ([node("GatherElements", "obs obs")], "indices of FLOAT"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_dangerous_or_too_large_is_refused(case):
    nodes, reason = REFUSED[case]

    with pytest.raises(ModelRejected, match=reason):
        examine(model(nodes), Limits())


def test_large_einsums_and_sums_are_refused_by_their_cost():
    wide = [build.port("obs", "N", 4096)]
    outer = [node("Einsum", "obs obs", "o", equation="bi,bj->bij"), node("ReduceSum", "o")]
    count = [node("CumSum", "obs one", f"c{n}") for n in range(40)]
    sums = [*count, node("Sum", " ".join(f"c{n}" for n in range(40)))]

    with pytest.raises(ModelRejected, match=r"ms of CPU|too much memory|too long"):
        examine(model(outer, inputs=wide), Limits())
    assert examine(model(sums, inputs=wide), Limits()).pace.block_rows < 100


@pytest.mark.parametrize("kind", [FLOAT, TensorProto.DOUBLE])
def test_sorting_meets_no_nan(kind):
    nodes = [node("Cast", "obs", "d", to=kind), node("TopK", "d all", "v i"),
             node("Cast", "v", to=FLOAT)]  # fmt: skip
    features = FEATURES.copy()
    features[::2, 1::2] = np.nan
    sorted_ = build.acted(build.load(model(nodes), 6, 6), features)
    lowest = np.float32(-3.4e38)

    assert np.array_equal(sorted_[1::2], -np.sort(-features[1::2]))
    assert np.isclose(sorted_[::2, 3:], lowest, rtol=0.01).all() if kind == FLOAT else True
    assert not np.isnan(sorted_).any()


def squeezed(axis, *, nodes=(), condition=None):
    """actions = squeeze(obs, axis) as torch writes it where it does not know the size."""
    outputs = [helper.make_tensor_value_info(name, FLOAT, None) for name in ("t", "e")]
    branches = {
        "then_branch": helper.make_graph(
            [*nodes, node("Squeeze", "obs axis", "t")], "then", [], outputs[:1]
        ),
        "else_branch": helper.make_graph([node("Identity", "obs", "e")], "else", [], outputs[1:]),
    }
    made = [
        node("Shape", "obs", "s"),
        node("Gather", "s axis", "n"),
        node("Equal", "n last", "is_one"),
        node("If", condition or "is_one", "q", **branches),
        node("Identity", "q"),
    ]
    message = onnx.ModelProto.FromString(model(made, inputs=[build.port("obs", "N", 1, 6)]))
    message.graph.initializer.append(integers("axis", axis))
    return message.SerializeToString()


@pytest.mark.parametrize("axis", [1, 2])
def test_a_branch_that_the_shapes_decide_is_taken(axis):
    vetted = examine(squeezed(axis), Limits())

    assert vetted.tensors["actions"].shape == ((ROWS, 6) if axis == 1 else (ROWS, 1, 6))
    assert "If" not in {each.op_type for each in vetted.model.graph.node}
    assert np.array_equal(build.acted(build.load(squeezed(axis), 6, 6), FEATURES), FEATURES)


@pytest.mark.parametrize(
    "data",
    [
        model([node("Pad", "obs rows")]),
        model([node("Einsum", "obs obs", equation="bi,ci->bc")]),
        squeezed(0),
    ],
)
def test_a_graph_that_counts_its_rows_gets_them_one_by_one(data):
    assert examine(data, Limits()).tensors["obs"].shape[0] == 1


def test_a_branch_that_only_a_run_decides_is_refused():
    decided = [node("ReduceMax", "obs", "m", keepdims=0), node("Greater", "m half", "is_large")]
    message = onnx.ModelProto.FromString(squeezed(1, condition="is_large"))
    for each in reversed(decided):
        message.graph.node.insert(0, each)

    with pytest.raises(ModelRejected, match="only a run can tell which of its branches"):
        examine(message.SerializeToString(), Limits())


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([node("Tanh", "obs", f"x{n}") for n in range(200)], "64 nodes at most"),
        ([node("NonZero", "obs", "x")], r"\(NonZero\): the operator is not allowed"),
        ([node("Tanh", "nowhere", "x")], "nothing before it makes its input"),
    ],
)
def test_nodes_of_a_branch_are_vetted(nodes, reason):
    with pytest.raises(ModelRejected, match=reason):
        examine(squeezed(1, nodes=nodes), Limits())


def test_a_graph_in_a_branch_is_refused():
    inner = helper.make_graph([node("Tanh", "obs", "z")], "inner", [], [])
    nodes = [node("If", "is_one", "z", then_branch=inner, else_branch=inner)]

    with pytest.raises(ModelRejected, match="graphs inside of nodes are not allowed"):
        examine(squeezed(1, nodes=nodes), Limits())


def test_a_loop_is_refused_by_its_name():
    body = helper.make_graph([node("Tanh", "a", "b")], "body", [], [])

    with pytest.raises(ModelRejected, match=r"'actions' \(Loop\): the operator is not allowed"):
        examine(model([node("Loop", "obs", body=body)]), Limits())


def test_the_page_on_policies_lists_the_operators():
    page = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()
    table = page.split("| operators | |")[1].split("\n\n")[0]
    listed = [row.split("|")[2].split() for row in table.splitlines()[2:]]

    assert sorted(name for names in listed for name in names) == sorted(RULES)
