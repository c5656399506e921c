from pathlib import Path

import pytest

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
