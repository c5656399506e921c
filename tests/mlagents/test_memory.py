"""Policies with memory: what ML-Agents exports acts in our host, and ours is exported alike."""

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.integration.command_line import GUESTS

from arkml import Host, record
from arkml.hive.protocol.settings import Settings
from arkml.learning.normalizer import Normalizer
from arkml.learning.ppo import Ppo
from arkml.policies.mlagents_form import as_mlagents

pytestmark = pytest.mark.mlagents
RECURRENT = "tests/mlagents/recurrent.py"
MEMORY = 16
SPECS = {"continuous": (3, 2, ()), "choices": (3, 0, (3, 2)), "both": (3, 1, (4, 2))}
FLOAT = onnx.TensorProto.FLOAT


def export(originals, path, features, continuous, branches):
    sizes = ",".join(map(str, branches)) or "none"
    originals.run("python", RECURRENT, path.with_suffix(""), features, continuous, sizes)
    return path.read_bytes()


def ports(model):
    """The kind of each input and output by name, and its sizes, None for rows."""
    graph = onnx.shape_inference.infer_shapes(onnx.ModelProto.FromString(model)).graph
    found = {}
    for side, given in (("in", graph.input), ("out", graph.output)):
        for port in given:
            kind = port.type.tensor_type
            sizes = [None if size.dim_param else size.dim_value for size in kind.shape.dim]
            found[side, port.name] = kind.elem_type, sizes
    return found


@pytest.mark.parametrize(("features", "continuous", "branches"), SPECS.values(), ids=SPECS)
def test_our_files_have_the_inputs_and_outputs_of_theirs(
    originals, tmp_path, features, continuous, branches
):
    theirs = ports(export(originals, tmp_path / "theirs.onnx", features, continuous, branches))
    settings = Settings(
        features, continuous + len(branches), branches=branches, hidden=16, memory=MEMORY,
        algorithm="ppo",
    )  # fmt: skip
    exported = Ppo(settings, Normalizer(features, active=True)).policy().model
    ours = ports(as_mlagents(exported))

    # Noise comes from Unity, by the name that it has for it; theirs draw it in the graph.
    assert ours.pop(("in", "epsilon")) == (FLOAT, [None, continuous + len(branches)])
    assert ours.pop(("out", "value_estimate")) == (FLOAT, [None, 1])
    assert ours.keys() == theirs.keys()
    for name, (kind, sizes) in theirs.items():
        assert ours[name][0] == kind, name
        assert len(ours[name][1]) == len(sizes), name
        if name[0] == "in":
            assert ours[name][1] == sizes, name


def test_their_lstm_acts_in_our_host_with_what_it_remembers(originals, tmp_path):
    model = export(originals, tmp_path / "echo.onnx", 4, 0, (3,))
    with Host(policy=tmp_path / "echo.onnx", deterministic=True) as host:
        guest = host.load(GUESTS / "c_echo.wasm")
        for _ in range(5):
            guest.update()
        assert guest.statistics.rows > 0
    record(GUESTS / "c_echo.wasm", tmp_path / "echo.onnx", tmp_path / "rows.npz", frames=60)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    memories, differs = {}, 0
    with np.load(tmp_path / "rows.npz") as rows:
        columns = [rows[name].tolist() for name in ("agent", "state", "features", "action")]
    for agent, state, features, action in zip(*columns, strict=True):
        fresh = np.zeros((1, 1, MEMORY), np.float32)
        given = {"obs_0": np.array([features], "f4"), "action_masks": np.ones((1, 3), "f4")}
        names = ["deterministic_discrete_actions", "recurrent_out"]
        given["recurrent_in"] = memories.get(agent, fresh)
        chosen, memories[agent] = session.run(names, given)
        if state not in (1, 2):  # no action follows on the end of an episode
            assert chosen[0].tolist() == action
            other, _ = session.run(names, given | {"recurrent_in": fresh})
            differs += int(other[0].tolist() != action)

    assert differs > 0
