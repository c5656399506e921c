"""The policies that the learner exports, compiled to WebAssembly, beside onnxruntime."""

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from tests.unit.kernel_runs import NEAR, ONNXRUNTIME, WASM, answers, error
from tests.unit.test_learning_encoders import ROWS as SEEN

from arkml.hive.protocol.parts import Part, fields_of
from arkml.hive.protocol.settings import Settings
from arkml.learning.encoder_graph import sample_rows
from arkml.learning.encoders import Views, columns_of
from arkml.learning.normalizer import Normalizer
from arkml.learning.ppo import Ppo
from arkml.learning.sac import Sac

COUNT = 1000
ROUNDING = 5e-7
"""Four units in the last place, as NEAR measures them: rounding that both have by chance."""

DOUBTFUL = 3
"""Choices of so many rows that may lie on the border between two, where rounding decides."""

PLAIN = {
    "continuous": {"actions": 3},
    "wide": {"actions": 8, "hidden": 256},
    "remembering": {"actions": 2, "memory": 32},
    "branches": {"actions": 2, "branches": (3, 5)},
    "both": {"actions": 4, "branches": (3, 2), "hidden": 48},
    "both, remembering": {"actions": 3, "branches": (7,), "memory": 16},
    "many choices": {"actions": 2, "branches": (100, 3)},
    "deep": {"actions": 1, "layers": 4, "hidden": 33},
}


def exported(algorithm, of, seed=0):
    """The file of a policy with the statistics of some rows."""
    normalizer = Normalizer(of.features, of.parts, active=True)
    numbers, _ = columns_of(Views.of(of), rows_of(of, 600, seed))
    normalizer.observe(numbers, np.zeros(600))
    normalizer.adopt()
    return algorithm(of, normalizer).policy().model


def rows_of(of, count, seed):
    spread = 3 * np.random.default_rng(seed).standard_normal((count, of.features))
    if not of.parts:
        return spread.astype(np.float32)
    return sample_rows(Views.of(of), (40 / 3 * spread).astype(np.float32))


def feeds_of(of, data, count, seed=1):
    random = np.random.default_rng(seed)
    rows = rows_of(of, count, seed)
    feeds = {"observations": rows}
    if of.parts:
        feeds = {f.name: rows[:, f.columns].reshape(count, *f.shape) for f in fields_of(of.parts)}
    for port in ONNXRUNTIME.onnx(data).layout.inputs:
        made = random.standard_normal((count, *port.shape)).astype(np.float32)
        if port.name == "action_masks":
            made = (made > -0.5).astype(np.float32)
        feeds.setdefault(port.name, np.ascontiguousarray(made))
    feeds["epsilon"][: count // 4] = 0
    return {name: np.ascontiguousarray(feed) for name, feed in feeds.items()}


def require_near(of, data, feeds, near=NEAR):
    found, expected = answers(WASM, data, feeds), answers(ONNXRUNTIME, data, feeds)
    for name, theirs in expected.items():
        ours = found[name]
        if name in ("actions", "raw_actions") and of.branches:
            choices = ours[:, -len(of.branches) :], theirs[:, -len(of.branches) :]
            assert (choices[0] != choices[1]).any(axis=1).sum() <= DOUBTFUL
            found[name], expected[name] = (one[:, : -len(of.branches)] for one in (ours, theirs))
        assert error(found[name], expected[name]) <= near, name
    return found, expected


def require_exact(of, data, near=NEAR):
    """Have answers be near to onnxruntime's, and no further from float64 than these, or hardly."""
    feeds = feeds_of(of, data, COUNT)
    found, expected = require_near(of, data, feeds, near)
    for name, exact in answers_of_float64(data, feeds).items():
        exact = exact[:, : found[name].shape[1]]
        assert error(found[name], exact) <= max(error(expected[name], exact), ROUNDING), name


def answers_of_float64(data, feeds):
    """The outputs of a model that computes in float64: [n, *shape], by name."""
    model = onnx.load_from_string(data)
    constants = [a.t for n in model.graph.node for a in n.attribute if a.HasField("t")]
    for tensor in (*model.graph.initializer, *constants):
        if tensor.data_type == onnx.TensorProto.FLOAT:
            wide = numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == onnx.TensorProto.FLOAT:
                attribute.i = onnx.TensorProto.DOUBLE
    for port in (*model.graph.input, *model.graph.output):
        port.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    wide = {name: feed.astype(np.float64) for name, feed in feeds.items()}
    found = ReferenceEvaluator(model).run(None, wide)
    return {port.name: one for port, one in zip(model.graph.output, found, strict=True)}


@pytest.mark.parametrize("options", PLAIN.values(), ids=PLAIN)
def test_policies_of_ppo_answer_as_in_onnxruntime(options):
    of = Settings(11, **options)

    require_exact(of, exported(Ppo, of))


@pytest.mark.parametrize("memory", [0, 4])
@pytest.mark.parametrize("parts", SEEN.values(), ids=SEEN)
def test_policies_that_see_answer_as_in_onnxruntime(parts, memory):
    width = sum(part.width for part in parts)
    of = Settings(width, 3, (3,), parts=tuple(parts), hidden=16, memory=memory)
    # The terms of an image's value cancel each other out: onnxruntime is further from float64.
    near = 1.3 * NEAR if parts == SEEN["image"] else NEAR

    require_exact(of, exported(Ppo, of), near)


def test_policies_that_see_several_frames_answer_as_in_onnxruntime():
    view = Part("view", (20, 24, 3), "image")
    of = Settings(view.width, 3, (3,), parts=(view,), hidden=16, frames=4, memory=4)

    require_exact(of, exported(Ppo, of), 2 * NEAR)


@pytest.mark.parametrize("hidden", [4, 64, 100])
def test_policies_of_sac_answer_as_in_onnxruntime(hidden):
    of = Settings(7, 3, hidden=hidden)

    require_exact(of, exported(Sac, of))


_SIDES = st.integers(1, 9)


@hypothesis_settings(max_examples=25, deadline=None)
@given(
    features=st.integers(1, 40), continuous=st.integers(0, 6), hidden=st.integers(1, 70),
    layers=st.integers(1, 3), branches=st.lists(st.integers(2, 9), max_size=3),
    memory=st.sampled_from([0, 2, 10]),
    entities=st.one_of(st.none(), st.builds(lambda *s: Part("it", s, "entities"), _SIDES, _SIDES)),
)  # fmt: skip
def test_policies_of_any_shape_answer_as_in_onnxruntime(
    features, continuous, hidden, layers, branches, memory, entities
):
    if not continuous and not branches:
        continuous = 1
    parts = () if entities is None else (Part("me", (features,)), entities)
    width = sum(part.width for part in parts) or features
    of = Settings(
        width, continuous + len(branches), tuple(branches), parts=parts, hidden=hidden,
        layers=layers, memory=memory,
    )  # fmt: skip

    data = exported(Ppo, of)
    require_near(
        of, data, feeds_of(of, data, 50), 3 * NEAR
    )  # of values whose terms cancel each other out
