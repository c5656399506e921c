"""Policies in the form of ML-Agents: what Unity asks of a model, and the same answers."""

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.unit.policy_models import weighty

from arkml.errors import ModelRejected
from arkml.hive.protocol.parts import Part, fields_of
from arkml.hive.protocol.settings import Settings
from arkml.learning.encoder_graph import sample_rows
from arkml.learning.encoders import Views
from arkml.learning.normalizer import Normalizer
from arkml.learning.ppo import Ppo
from arkml.learning.sac import Sac
from arkml.policies.mlagents_form import as_mlagents

ROWS = 64
CASES = {
    "continuous": Settings(3, 2, hidden=8, seed=1),
    "choices": Settings(3, 2, branches=(3, 2), hidden=8, seed=2),
    "both": Settings(3, 3, branches=(4, 2), hidden=8, seed=3),
    "continuous with memory": Settings(3, 2, hidden=8, memory=6, seed=4, algorithm="ppo"),
    "choices with memory": Settings(3, 1, branches=(3,), hidden=8, memory=6, seed=5),
    "both with memory": Settings(3, 3, branches=(4, 2), hidden=8, memory=6, seed=6),
}


def exported(of):
    learner = (Ppo if of.branches or of.memory else Sac)(of, Normalizer(of.features, active=True))
    return weighty(learner.policy().model, of.seed)


def given(of, *, noisy):
    random = np.random.default_rng(7)
    inputs = {"observations": random.standard_normal((ROWS, of.features))}
    inputs["epsilon"] = noisy * random.standard_normal((ROWS, of.actions))
    if of.branches:
        inputs["action_masks"] = random.integers(0, 2, (ROWS, sum(of.branches)))
    if of.memory:
        inputs["h_in"] = random.standard_normal((ROWS, of.memory))
    return {name: values.astype(np.float32) for name, values in inputs.items()}


def answers(model, inputs):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def in_their_names(inputs):
    theirs = {"obs_0": inputs["observations"], "epsilon": inputs["epsilon"]}
    if "action_masks" in inputs:
        theirs["action_masks"] = inputs["action_masks"]
    if "h_in" in inputs:
        theirs["recurrent_in"] = inputs["h_in"][:, None]
    return theirs


@pytest.fixture(params=CASES.values(), ids=CASES)
def of(request):
    return request.param


def test_the_answers_are_those_of_the_file_that_was_exported(of):
    model = exported(of)
    inputs = given(of, noisy=1.0)
    ours = answers(model, inputs)
    calm = answers(model, given(of, noisy=0.0))
    theirs = answers(as_mlagents(model), in_their_names(inputs))
    split = of.continuous

    assert not np.array_equal(ours["actions"], calm["actions"])
    for prefix, actions in (("", ours["actions"]), ("deterministic_", calm["actions"])):
        if split:
            found = theirs[f"{prefix}continuous_actions"]
            np.testing.assert_array_equal(found, actions[:, :split])
        if of.branches:
            found = theirs[f"{prefix}discrete_actions"]
            np.testing.assert_array_equal(found, actions[:, split:])
            assert found.dtype.kind == "i"  # Unity reads integers
    np.testing.assert_array_equal(theirs["value_estimate"], ours["values"])
    if of.memory:
        np.testing.assert_array_equal(theirs["recurrent_out"][:, 0], ours["h_out"])


def test_it_has_what_unity_asks_of_a_model(of):
    # By SentisModelParamLoader, GeneratorImpl and ApplierImpl of com.unity.ml-agents 4.0.
    theirs = answers(as_mlagents(exported(of)), in_their_names(given(of, noisy=1.0)))
    model = onnx.ModelProto.FromString(as_mlagents(exported(of)))
    ranks = {port.name: len(port.type.tensor_type.shape.dim) for port in model.graph.input}

    assert ranks.pop("obs_0") == ranks.pop("epsilon") == 2
    assert theirs["version_number"].tolist() == [3.0]
    assert theirs["memory_size"].tolist() == [of.memory]
    assert ("recurrent_in" in ranks) == bool(of.memory) == ("recurrent_out" in theirs)
    assert ranks.pop("recurrent_in", 3) == 3
    assert ranks.pop("action_masks", 2) == 2
    assert ranks == {}  # any other input is unexpected
    sizes = theirs.get("continuous_action_output_shape")
    assert (sizes is not None) == bool(of.continuous)
    assert sizes is None or sizes.tolist() == [of.continuous]
    sizes = theirs.get("discrete_action_output_shape")
    assert (sizes is not None) == bool(of.branches)
    assert sizes is None or sizes.tolist() == [list(of.branches)]
    assert all(opset.version <= 15 for opset in model.opset_import)


PARTS = (
    Part("obs_3", (2,)),  # a name that another input has then
    Part("view", (12, 9, 3), "image"),
    Part("tiles", (5, 3), "entities"),
    Part("board", (4, 5, 2), "grid"),
    Part("cells", (3, 2), "grid", 4),
    Part("other", (8, 8, 1), "image"),
)


def test_parts_become_what_sensors_of_ml_agents_show():
    width = sum(part.width for part in PARTS)
    of = Settings(width, 3, branches=(4, 2), hidden=8, memory=6, parts=PARTS)
    made = Ppo(of, Normalizer(width, PARTS, active=True))
    model = made.policy().model
    noise = (50 * np.random.default_rng(3).standard_normal((ROWS, width))).astype(np.float32)
    rows = sample_rows(Views.of(of), noise)
    ours = given(of, noisy=1.0)
    theirs = in_their_names(ours)
    del ours["observations"], theirs["obs_0"]
    fields = fields_of(PARTS)
    ours |= {one.name: rows[:, one.columns].reshape(ROWS, *one.shape) for one in fields}
    shapes = []
    for place, one in enumerate(fields):
        values = ours[one.name]
        if one.part.kind == "image":
            values = values / np.float32(255)
        if one.part.categories:
            values = (values[..., None] == np.arange(4)).astype(np.float32)
        if one.part.kind in ("grid", "image"):
            values = np.ascontiguousarray(np.moveaxis(values, -1, 1))
        theirs[f"obs_{place}"] = values
        shapes.append(values.shape[1:])
    expected, found = answers(model, ours), answers(as_mlagents(model), theirs)

    assert shapes == [(2,), (3, 12, 9), (1,), (5, 3), (2, 4, 5), (4, 3, 2), (1, 8, 8)]
    np.testing.assert_allclose(found["value_estimate"], expected["values"], rtol=1e-4, atol=1e-5)
    continuous = found["continuous_actions"]
    np.testing.assert_allclose(continuous, expected["actions"][:, :1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("memory", [0, 6])
def test_images_before_are_part_of_the_memory(memory):
    part = Part("view", (8, 8, 1), "image")
    of = Settings(64, 2, hidden=8, memory=memory, parts=(part,), frames=3, algorithm="ppo")
    model = Ppo(of, Normalizer(64, of.parts, active=True)).policy().model
    random = np.random.default_rng(0)
    ours = given(of, noisy=1.0)
    del ours["observations"]
    ours["view"] = random.integers(0, 256, (ROWS, 8, 8, 1)).astype(np.float32)
    ours["frames_in"] = random.integers(0, 256, (ROWS, 128)).astype(np.float32)
    states = [name for name in ("h_in", "frames_in") if name in ours]
    theirs = {
        "obs_0": np.moveaxis(ours["view"] / np.float32(255), -1, 1),
        "epsilon": ours["epsilon"],
    }
    theirs["recurrent_in"] = np.concatenate([ours[name] for name in states], 1)[:, None]
    expected, found = answers(model, ours), answers(as_mlagents(model), theirs)
    after = [expected[name.replace("_in", "_out")] for name in states]

    assert found["memory_size"].tolist() == [memory + 128]
    np.testing.assert_array_equal(found["recurrent_out"][:, 0], np.concatenate(after, 1))
    np.testing.assert_array_equal(expected["frames_out"][:, 64:], ours["view"].reshape(ROWS, 64))
    np.testing.assert_allclose(found["value_estimate"], expected["values"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[{}]", "metadata 'parts'"),
        ('[{"name": "me", "shape": [2], "kind": "picture"}]', "picture"),
        ('[{"name": "me", "shape": [3], "kind": "entities"}]', "shape [most, features]"),
        ('[{"name": "you", "shape": [3]}]', "with inputs you, epsilon"),
    ],
)
def test_parts_that_are_none_are_refused(text, sentence):
    part = Part("me", (2, 2), "entities")
    of = Settings(5, 2, hidden=8, parts=(part,))
    made = Ppo(of, Normalizer(5, of.parts, active=True)).policy().model
    model = onnx.ModelProto.FromString(made)
    (line,) = model.metadata_props
    line.value = text

    with pytest.raises(ModelRejected) as refused:
        as_mlagents(model.SerializeToString())
    assert sentence in str(refused.value)


def test_a_file_of_another_trainer_is_refused_with_its_ports():
    model = onnx.ModelProto.FromString(exported(CASES["continuous"]))
    model.graph.input[0].name = "obs"

    with pytest.raises(ModelRejected, match="this one has inputs obs, epsilon, and outputs"):
        as_mlagents(model.SerializeToString())


@pytest.mark.parametrize("text", [None, "", "3", "3,1", "3,2,0", "3;2", "five"])
def test_branches_that_do_not_fit_the_masks_are_refused(text):
    model = onnx.ModelProto.FromString(exported(CASES["choices"]))
    (line,) = model.metadata_props
    assert line.value == "3,2"
    if text is None:
        del model.metadata_props[:]
    else:
        line.value = text

    with pytest.raises(
        ModelRejected, match=f"the metadata 'branches' of the model is '{text or ''}'"
    ):
        as_mlagents(model.SerializeToString())
