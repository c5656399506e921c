from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.unit import policy_models as build

from arkml.policies.cervo import pack_onnx
from arkml.policies.describe import ACCEPTED, PortReport, describe

POLICIES = Path(__file__).parents[2] / "fixtures" / "policies"
PORTS = {
    "obs": PortReport("obs", "observation", (8,)),
    "epsilon": PortReport("epsilon", "epsilon", (3,)),
    "actions": PortReport("actions", "actions", (3,)),
}


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("epsilon.onnx", "onnx"),
        ("epsilon.onnx.crvo", "cervo-onnx"),
        ("epsilon.nnef.crvo", "cervo-nnef"),
        ("epsilon.nnef_b4.crvo", "cervo-nnef"),
    ],
)
def test_every_kind_of_file_is_described_alike(file, kind):
    data = (POLICIES / "cervo" / file).read_bytes()
    report = describe(data)

    assert (report.kind, report.bytes, report.verdict) == (kind, len(data), ACCEPTED)
    assert report.inputs == (PORTS["obs"], PORTS["epsilon"])
    assert report.outputs == (PORTS["actions"],)


def test_an_onnx_model_tells_its_size_and_origin():
    report = describe((POLICIES / "cervo" / "epsilon.onnx").read_bytes())

    assert report.parameters == 8 * 32 + 32 + 32 * 3 + 3 + 3
    assert (report.nodes, report.opset) == (7, 15)
    assert report.producer == "arkpeer-bench"


@pytest.mark.parametrize(
    ("data", "kind", "sentence"),
    [
        (b"", "onnx", "the model has no bytes"),
        (b"CRVO", "onnx", "too few bytes available"),
        (pack_onnx(b"junk"), "cervo-onnx", "not an ONNX model"),
        (b"CRVO\0\0\0\2junk", "cervo-nnef", "not an NNEF archive"),
    ],
)
def test_a_file_that_may_not_enter_is_described_by_the_reason(data, kind, sentence):
    report = describe(data)

    assert report.kind == kind
    assert sentence in report.verdict
    assert report.inputs == report.outputs == ()


def outputs(*ports):
    """A model whose outputs, of names, widths and whole numbers or not, have no other meaning."""
    nodes, weights, made = [], [], []
    for name, width, is_whole in ports:
        weights.append(build.weight(f"w_{name}", np.ones((8, width))))
        kind = TensorProto.INT64 if is_whole else TensorProto.FLOAT
        nodes.append(build.node("MatMul", f"obs w_{name}", f"h_{name}"))
        nodes.append(build.node("Cast", f"h_{name}", name, to=kind))
        made.append(helper.make_tensor_value_info(name, kind, ["N", width]))
    return build.model(nodes, [build.port("obs", "N", 8)], made, weights)


def test_what_no_guest_can_use_is_not_accepted_and_the_way_out_is_named():
    data = outputs(("53", 1, False), ("24", 1, False), ("51", 1, False))

    assert "(53: 1, 24: 1, 51: 1), and their names do not tell: say which" in describe(data).verdict
    named = describe(data, outputs=("53",))
    assert (named.verdict, named.acts) == (ACCEPTED, "53 acts, no value")
    assert [port.role for port in named.outputs] == ["actions", "output", "output"]
    assert "no output '7', only 53: 1" in describe(data, outputs=("7",)).verdict


def test_what_acts_is_told():
    report = describe(outputs(("critic", 1, False), ("action", 1, True)))

    assert report.acts == "action acts, the value is critic, for guests that declare branches"
    assert report.outputs == (
        PortReport("critic", "values", (1,)),
        PortReport("action", "choices", (1,), "int64"),
    )


@pytest.mark.parametrize("width", [1, 4])
def test_outputs_for_guests_with_branches_are_accepted(width):
    report = describe(outputs(("56", 1, True), ("24", 1, False), ("54", width, False)))

    assert report.verdict == ACCEPTED
    assert "56 acts" in report.acts


@pytest.mark.parametrize(
    ("ports", "sentence"),
    [
        ([("fire", 3, False), ("move", 3, False)],
         "fire (branch 0: the highest score of 3 choices), move (branch 1: the highest score of 3"
         " choices) act in this order, no value, for guests that declare branches"),
        ([("pi_1", 2, False), ("pi_0", 4, False), ("v", 1, False)],
         "pi_0 (branch 0: the highest score of 4 choices), pi_1 (branch 1: the highest score of 2"
         " choices) act in this order, the value is v, for guests that declare branches"),
        ([("fire", 1, True), ("move", 1, True)],
         "fire, move act in this order, no value, for guests that declare branches"),
    ],
)  # fmt: skip
def test_of_an_output_for_each_branch_the_order_is_told(ports, sentence):
    report = describe(outputs(*ports))

    assert report.verdict == ACCEPTED
    assert sentence in report.acts


@pytest.mark.parametrize("name", ["advantage", "log_probs"])
def test_the_way_out_is_named_for_scores_that_do_not_act_by_their_names(name):
    data = outputs((name, 4, False), ("value", 1, False))

    assert f"only {name}: 4, value: 1; say which acts: --policy-output NAME" in (
        describe(data).verdict
    )
    assert describe(data, outputs=(name,)).acts == f"{name} acts, the value is value"


def test_outputs_of_several_widths_are_accepted_for_guests_of_each():
    report = describe(outputs(("a", 3, False), ("b", 4, False)))

    assert report.verdict == ACCEPTED
    assert "a acts, no value; or b acts, no value" in report.acts


def test_an_output_without_rows_has_its_own_shape():
    weights = [build.weight("w", np.ones((8, 2))), build.weight("version_number", [3.0])]
    nodes = [
        build.node("MatMul", "obs w", "actions"),
        build.node("Identity", "version_number", "v"),
        build.node("Shape", "obs", "size"),
    ]
    ports = [build.port("actions", "N", 2), build.port("v", 1)]
    ports.append(helper.make_tensor_value_info("size", TensorProto.INT64, [2]))
    report = describe(build.model(nodes, [build.port("obs", "N", 8)], ports, weights))

    assert report.outputs[1:] == (
        PortReport("v", "other", (1,), has_rows=False),
        PortReport("size", "other", (2,), "int64", has_rows=False),
    )


@pytest.mark.parametrize("batch", [1, 4])
def test_a_batch_that_is_opened_is_not_told_and_one_that_stays_is(batch):
    plain = build.linear(np.ones((8, 2)), batch=batch)
    mixing = build.model(
        [build.node("ReduceMean", "obs", "m", keepdims=0), build.node("Mul", "obs m", "actions")],
        [build.port("obs", batch, 8)],
        [build.port("actions", batch, 8)],
    )

    assert describe(plain).batch is None
    assert describe(mixing).batch == batch


@pytest.mark.parametrize(
    ("batch", "why"),
    [("N", "node 'm' (ReduceMean): what it gives for a row depends on other rows"), (1, "")],
)
def test_why_rows_run_one_by_one_is_told(batch, why):
    mixing = build.model(
        [build.node("ReduceMean", "obs", "m", axes=[0]), build.node("Mul", "obs m", "actions")],
        [build.port("obs", batch, 8)],
        [build.port("actions", batch, 8)],
    )
    report = describe(mixing)

    assert (report.batch, report.why_one) == (1, why)


def test_weights_in_other_files_name_the_remedies(tmp_path):
    model = onnx.ModelProto.FromString(build.linear(np.ones((64, 64))))
    onnx.save_model(
        model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0
    )

    verdict = describe((tmp_path / "m.onnx").read_bytes()).verdict
    assert "external_data=False" in verdict
    assert "`arkml pack`" in verdict
