"""The next version of a policy: known where its weights alone differ, else vetted again."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from arkml.errors import ModelRejected
from arkml.limits import Limits
from arkml.policies import onnx_model
from arkml.policies.model_cache import ModelCache
from arkml.policies.version_outline import VersionOutline
from arkml.policies.vetting import vet


def version(scale, *, nodes="MatMul", raw=True, hidden=4):
    """A policy of 2 features and 3 actions, whose weights are `scale`."""
    weight = np.full((2, hidden), scale, np.float32), np.full((hidden, 3), scale, np.float32)
    stored = [numpy_helper.from_array(one, name) for one, name in zip(weight, "ab", strict=True)]
    if not raw:
        stored = [
            helper.make_tensor(one.name, TensorProto.FLOAT, one.dims, numpy_helper.to_array(one))
            for one in stored
        ]
    graph = helper.make_graph(
        [helper.make_node(nodes, ["features", "a"], ["h"]),
         helper.make_node("MatMul", ["h", "b"], ["actions"])],
        "policy",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("actions", TensorProto.FLOAT, ["n", 3])],
        stored,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model.SerializeToString()


def outline(data):
    return VersionOutline.of(data, vet(data, Limits()))


@pytest.fixture
def vetted(monkeypatch):
    """The files that were vetted."""
    seen = []

    def examine(data, limits):
        seen.append(data)
        return original(data, limits)

    original = onnx_model.examine
    monkeypatch.setattr(onnx_model, "examine", examine)
    return seen


def answer(model, count=2):
    feeds = {"features": np.ones((count, 2), np.float32)}
    fetches = {"actions": np.zeros((count, 3), np.float32)}
    model.run(count, feeds, fetches, onnx_model.LoadTime(60))
    return fetches["actions"]


def test_a_version_with_other_weights_is_not_vetted_and_answers_by_its_own(vetted):
    models = ModelCache(seconds=60)
    first = models.version(version(1.0))
    assert answer(first.load(None)) == pytest.approx(np.full((2, 3), 8.0))
    second = models.version(version(0.5))

    assert answer(second.load(None)) == pytest.approx(np.full((2, 3), 2.0))
    assert second.layout is first.layout
    assert vetted == [version(1.0)]


@pytest.mark.parametrize(
    "other",
    [version(1.0, nodes="Gemm"), version(1.0, hidden=5), version(1.0, raw=False)],
    ids=["another operator", "another size", "weights in another field"],
)
def test_a_version_that_differs_elsewhere_is_vetted(vetted, other):
    models = ModelCache(seconds=60)
    models.version(version(1.0)).load(None)
    models.version(other)

    assert vetted == [version(1.0), other]


def test_a_version_that_vetting_refuses_is_refused_also_after_one_that_it_takes():
    models = ModelCache(seconds=60)
    models.version(version(1.0)).load(None)

    with pytest.raises(ModelRejected, match="Nonsense"):
        models.version(version(1.0, nodes="Nonsense"))


def test_each_byte_outside_of_the_weights_has_to_be_the_same():
    data = version(1.0)
    known = outline(data)
    weights = 4 * (2 * 4 + 4 * 3)
    fitting = [
        place
        for place in range(len(data))
        if known.fits(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    ]

    assert known.fits(data)
    assert len(fitting) == weights
    assert not known.fits(data[:-1])
    assert not known.fits(data + b"\0")


def test_weights_that_are_no_raw_floats_belong_to_the_outline():
    known = outline(version(1.0, raw=False))

    assert known.fits(version(1.0, raw=False))
    assert not known.fits(version(0.5, raw=False))


def test_a_file_that_vetting_changes_has_no_outline():
    model = onnx.load_from_string(version(1.0))
    model.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, ["n", 4]))

    assert outline(model.SerializeToString()) is None
