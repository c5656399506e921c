"""The next version of a policy: known where its weights alone differ, else vetted again."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.unit.test_learning_ppo_export import weights

from arkml.batches import ROW, Batch
from arkml.errors import ModelRejected
from arkml.learning.policy_graph import to_onnx
from arkml.limits import Limits
from arkml.policies import onnx_model
from arkml.policies.library import PolicyLibrary
from arkml.policies.model_cache import ModelCache
from arkml.policies.training import TrainingPolicy
from arkml.policies.version_outline import VersionOutline, joined
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


def two_sided(scale, *, unused="Relu", axis=1, order=(1, 0, 2), kind=np.float32, hidden=4):
    """A policy as `version`, and an output beside its actions that a run does not use."""
    model = onnx.load_from_string(version(scale, hidden=hidden))
    graph = model.graph
    graph.initializer.append(numpy_helper.from_array(np.full((hidden, 3), 2 * scale, kind), "c"))
    graph.initializer.append(numpy_helper.from_array(np.int64(order), "places"))
    graph.node.extend([
        helper.make_node("Cast", ["c"], ["c32"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["h", "c32"], ["wide"]),
        helper.make_node("Gather", ["wide", "places"], ["picked"], axis=axis),
        helper.make_node(unused, ["picked"], ["beside"]),
    ])  # fmt: skip
    graph.output.append(helper.make_tensor_value_info("beside", TensorProto.FLOAT, ["n", 3]))
    return model.SerializeToString()


def test_a_version_of_which_some_outputs_are_used_is_vetted_once(vetted):
    models = ModelCache(seconds=60)
    models.version(two_sided(1.0)).load(("actions",))
    second = models.version(two_sided(0.5)).load(("actions",))

    assert vetted == [two_sided(1.0)]
    assert [port.name for port in second.outputs] == ["actions"]
    assert answer(second) == pytest.approx(np.full((2, 3), 2.0))


@pytest.mark.parametrize(
    "other",
    [
        two_sided(1.0, unused="Tanh"),
        two_sided(1.0, order=(0, 1, 2)),
        two_sided(1.0, kind=np.float64),
        two_sided(1.0, hidden=5),
        two_sided(1.0).replace(b"picked", b"pocked"),
    ],
    ids=["operator", "integers", "type of a weight", "size", "name"],
)
def test_a_version_that_differs_in_what_is_not_used_is_vetted(vetted, other):
    models = ModelCache(seconds=60)
    models.version(two_sided(1.0)).load(("actions",))
    models.version(other).load(("actions",))

    assert vetted == [two_sided(1.0), other]


@pytest.mark.parametrize("hostile", [{"unused": "Nonsense"}, {"axis": 7}])
def test_a_version_is_refused_for_what_is_not_used_also_after_one_that_was_taken(hostile):
    models = ModelCache(seconds=60)
    models.version(two_sided(1.0)).load(("actions",))

    with pytest.raises(ModelRejected, match=r"Nonsense|Gather"):
        models.version(two_sided(1.0, **hostile))


def test_each_byte_of_a_version_outside_of_its_weights_counts_whatever_is_used():
    data = two_sided(1.0)
    file = onnx_model.OnnxFile(data, Limits(), seconds=60)
    _, known = file.load_version(data, ["actions"])
    fitting = [
        place
        for place in range(len(data))
        if known.outline.fits(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    ]

    assert len(fitting) == 4 * (2 * 4 + 4 * 3 + 4 * 3)
    assert sum(isinstance(piece, slice) for piece in known.pieces) == 2


def test_other_outputs_of_a_version_are_vetted_by_themselves(vetted):
    models = ModelCache(seconds=60)
    models.version(two_sided(1.0)).load(("actions",))
    both = models.version(two_sided(0.5)).load(None)
    models.version(two_sided(2.0)).load(None)
    models.version(two_sided(3.0)).load(("actions",))

    assert [port.name for port in both.outputs] == ["actions", "beside"]
    assert vetted == [two_sided(1.0), two_sided(0.5)]


def test_a_part_takes_no_weight_that_the_file_has_otherwise():
    data = two_sided(1.0)
    known, part = outline(data), onnx.load_from_string(version(1.0))
    pieces = known.pieces_of(data, part)
    part.graph.initializer[0].raw_data = bytes(len(part.graph.initializer[0].raw_data))
    other = onnx.load_from_string(version(1.0))
    other.graph.initializer[0].name = "z"

    assert joined(pieces, two_sided(0.5)) == version(0.5)
    assert known.pieces_of(data, part) is None
    assert known.pieces_of(data, other) is None


@pytest.mark.parametrize(("branches", "continuous"), [((), 2), ((3, 2), 0), ((2, 5, 1), 2)])
def test_versions_of_ppo_are_vetted_once_and_answer_by_their_own(vetted, branches, continuous):
    made = [weights(branches, continuous, seed=seed) for seed in range(3)]
    files, actions = [to_onnx(one) for one in made], made[0].actions

    def acting(library, data):
        policy = TrainingPolicy(
            "run", 3, actions, sink=None, seed=3, workspace=library.workspace, branches=branches
        )
        features = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
        batch = Batch(
            np.zeros(5, ROW), features, np.zeros((5, actions), "f4"), np.zeros(5, "f4"),
            np.array(1, np.uint64),
        )  # fmt: skip
        library.load_version(data, policy).act(batch)
        return batch.actions.tolist(), batch.values.tolist()

    one = PolicyLibrary(ModelCache(seconds=60))
    again = [acting(one, data) for data in files]

    assert vetted == files[:1]
    assert again == [acting(PolicyLibrary(ModelCache(seconds=60)), data) for data in files]
    assert again[0] != again[1] != again[2]
