"""The container of a policy with memory acts in tract, the engine of Cervo, as in onnxruntime."""

import numpy as np
import onnxruntime
import pytest
import tract

from arkml.hive.protocol.settings import Settings
from arkml.learning.normalizer import Normalizer
from arkml.learning.ppo import Ppo
from arkml.policies.cervo import AssetKind, pack_onnx, unpack

AGENTS, STEPS, MEMORY = 5, 1_000, 8
SPECS = {
    "choices": Settings(4, 1, branches=(3,), hidden=16, memory=MEMORY, seed=1),
    "continuous": Settings(4, 2, hidden=16, memory=MEMORY, seed=1, algorithm="ppo"),
    "both": Settings(4, 3, branches=(3, 2), hidden=16, memory=MEMORY, seed=1),
}


@pytest.mark.parametrize("of", SPECS.values(), ids=SPECS)
def test_it_acts_alike_for_a_thousand_steps(of, tmp_path):
    exported = Ppo(of, Normalizer(4, active=True)).policy().model
    kind, payload = unpack(pack_onnx(exported))
    (tmp_path / "payload.onnx").write_bytes(payload)
    session = onnxruntime.InferenceSession(exported, providers=["CPUExecutionProvider"])
    inputs = {port.name: port.shape[1] for port in session.get_inputs()}
    outputs = [port.name for port in session.get_outputs()]
    model = tract.onnx().load(tmp_path / "payload.onnx")
    for place, width in enumerate(inputs.values()):
        model.set_input_fact(place, f"{AGENTS},{width},f32")
    runnable = model.into_model().into_runnable()
    chance = np.random.default_rng(0)
    ours = theirs = np.zeros((AGENTS, MEMORY), np.float32)
    taken = set()
    for _ in range(STEPS):
        given = {
            name: chance.standard_normal((AGENTS, width)).astype(np.float32)
            for name, width in inputs.items()
        }
        if of.branches:
            given["action_masks"] = (given["action_masks"] > 0).astype(np.float32)
        answers = dict(zip(outputs, session.run(outputs, given | {"h_in": ours}), strict=True))
        found = runnable.run([(given | {"h_in": theirs})[name] for name in inputs])
        other = {name: array.to_numpy().copy() for name, array in zip(outputs, found, strict=True)}
        for name in outputs:
            np.testing.assert_allclose(other[name], answers[name], rtol=1e-4, atol=1e-4)
        ours, theirs = answers["h_out"], other["h_out"]
        taken.update(answers["actions"][:, -1].tolist())

    assert kind is AssetKind.ONNX
    assert len(taken) > 1
