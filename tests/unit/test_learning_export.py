"""Policies as ONNX models: what they answer, and that the host takes them."""

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from tests.integration.test_learner import write_run

from arkml.abi.codes import SnapshotFormat
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Diverged, Layer
from arkml.learning.learner import Learner
from arkml.learning.normalizer import Normalizer, Scaling
from arkml.learning.policy_graph import ExportWrong, to_onnx
from arkml.learning.ppo import Ppo
from arkml.learning.sac import Sac, SacWeights
from arkml.limits import Limits
from arkml.policies.library import PolicyLibrary
from arkml.policies.model_cache import ModelCache
from arkml.policies.vetting import vet

SCALING = Scaling(np.float32([1.0, -2.0]), np.float32([0.5, 4.0]), 10.0)


def layer(*rows, bias):
    """A layer of weights [inputs, outputs], or of a critic for each."""
    return Layer(np.array(rows, np.float32), np.array(bias, np.float32))


def weights():
    """Mean: x0 - x1 of the normalized features. Critics: x0 + 2 a, and 1."""
    actor = [
        layer([1, -1], [-1, 1], bias=[0, 0]),
        layer([1, 0], [-1, 0], bias=[0.0, np.log(0.5)]),
    ]
    critics = [layer([[1], [0], [2]], [[0], [0], [0]], bias=[[0], [1.0]])]
    return SacWeights(SCALING, actor, critics)


def expected_answer(features, epsilon):
    x = SCALING.features(np.asarray(features, np.float32))
    mean = x[:, :1] - x[:, 1:]
    actions = np.tanh(mean + np.float32(0.5) * epsilon)
    values = 10 * np.minimum(x[:, :1] + 2 * np.tanh(mean), 1)
    return actions, values


def run(model, features, epsilon):
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    given = {"observations": np.float32(features), "epsilon": np.float32(epsilon)}
    return session.run(["actions", "values"], given)


@pytest.mark.parametrize("count", [1, 5])
def test_a_model_answers_what_the_formula_says(count):
    random = np.random.default_rng(0)
    features = random.standard_normal((count, 2)).astype(np.float32)
    epsilon = random.standard_normal((count, 1)).astype(np.float32)
    actions, values = run(to_onnx(weights()), features, epsilon)
    expected = expected_answer(features, epsilon)
    numpy = weights().act(features, epsilon)

    assert actions == pytest.approx(expected[0], abs=1e-6)
    assert values == pytest.approx(expected[1], abs=1e-5)
    assert numpy.actions == pytest.approx(expected[0], abs=1e-6)
    assert numpy.values == pytest.approx(expected[1], abs=1e-5)


def test_features_far_off_are_clipped_in_the_model():
    model = to_onnx(weights())
    near = run(model, [[21.0, -2.0]], [[0.0]])
    far = run(model, [[1e30, -2.0]], [[0.0]])

    assert far[0] == near[0]
    assert far[1] == near[1]


def test_the_check_passes_what_answers_alike():
    weights().check(to_onnx(weights()))  # raises ExportWrong otherwise


def test_the_check_passes_critics_whose_terms_nearly_cancel_each_other_out():
    random = np.random.default_rng(0)
    hidden = 64
    first = random.uniform(-1, 1, (2, 3, hidden))
    second = np.repeat(random.uniform(-0.1, 0.1, (2, hidden, hidden // 2)), 2, axis=2)
    last = np.tile([[300.0], [-300.0]], (2, hidden // 2, 1))
    critics = [
        Layer(np.float32(weight), np.zeros((2, weight.shape[2]), np.float32))
        for weight in (first, second, last)
    ]
    cancelling = replace(weights(), critics=critics)
    model = to_onnx(cancelling)
    values = run(model, [[3.0, 1.0]], [[0.0]])[1]

    assert abs(values).max() < 0.1
    cancelling.check(model)  # raises ExportWrong otherwise


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("actions", {"actor": [*weights().actor[:1], layer([1, 0], [-1, 0], bias=[0.1, 0.1])]}),
        ("values", {"critics": [layer([[1], [0], [1]], [[0], [0], [0]], bias=[[0], [1.0]])]}),
        ("values", {"scaling": Scaling(SCALING.mean, SCALING.inverse, np.nan)}),
    ],
)
def test_the_check_refuses_what_answers_otherwise(part, other):
    with pytest.raises(ExportWrong, match=part):
        replace(weights(), **other).check(to_onnx(weights()))


@pytest.mark.parametrize(
    ("algorithm", "part"),
    [(Sac, "actor"), (Sac, "critics"), (Ppo, "actor"), (Ppo, "critic"), (Ppo, "log_std")],
)
def test_weights_that_are_not_finite_are_not_exported(algorithm, part):
    made = algorithm(Settings(2, 1, hidden=4, layers=1, rollout_rows=8), Normalizer(2, active=True))
    networks = getattr(made._state, "weights", made._state)
    broken = getattr(networks, part)
    (broken if part == "log_std" else broken[0].weight)[0] = np.nan

    with pytest.raises(Diverged, match="not finite after update 0"):
        made.policy()


def test_a_policy_of_any_learner_with_a_weight_that_is_nan_is_not_published(tmp_path, monkeypatch):
    learner = Learner.open(write_run(tmp_path / "run", Settings(2, 1)))
    policy = learner.algorithm.policy()
    model = onnx.load_from_string(policy.model)
    weight = next(each for each in model.graph.initializer if len(each.dims) == 2)
    values = onnx.numpy_helper.to_array(weight).copy()
    values[0, 0] = np.nan
    weight.raw_data = values.tobytes()
    broken = policy._replace(model=model.SerializeToString())
    monkeypatch.setattr(learner.algorithm, "policy", lambda: broken)

    with pytest.raises(Diverged, match=f"the weight '{weight.name}' of the policy is NaN"):
        learner.export()
    assert not list((tmp_path / "run").rglob("*.onnx"))


def test_the_host_takes_the_model_with_its_noise_and_values():
    model = to_onnx(weights())
    vet(model, Limits())
    policy = PolicyLibrary(ModelCache()).load(model, SnapshotFormat.ONNX, 2, 1)
    ports = onnx.load_from_string(model).graph

    assert policy is not None
    assert [port.name for port in ports.input] == ["observations", "epsilon"]
    assert [port.name for port in ports.output] == ["actions", "values"]
