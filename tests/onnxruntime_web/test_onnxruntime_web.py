"""The runtime of browsers, in node, answers by exported policies as Python's and our host do."""

import base64
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tests.integration.command_line import GUESTS
from tests.node import run_module
from tests.unit.policy_models import weighty

import arkml
from arkml.hive.protocol.settings import Settings
from arkml.learning.normalizer import Normalizer
from arkml.learning.ppo import Ppo

pytestmark = pytest.mark.onnxruntime_web
PLAY = Path(__file__).parent / "play.mjs"
STEPS = 1_000
MEMORY = 16
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
GAMES = {
    "c_echo": Settings(4, 1, branches=(3,), hidden=32, memory=MEMORY),
    "c_pendulum_plain": Settings(3, 1, hidden=32, memory=MEMORY, algorithm="ppo"),
}


class Rows:
    """Rows of agents, frame by frame: what a policy is given, and what our host took of it."""

    def __init__(self, path):
        with np.load(path) as file:
            self.agents, self.state = file["agent"].tolist(), file["state"]
            self.features, self.taken = file["features"], file["action"]
            steps = file["step"]
        self.acts = ~np.isin(self.state, [1, 2])  # none after the end of an episode
        # An agent has one row in a run; new ones may share that of those that ended before them.
        self.frames, seen = [], set()
        for agent in self.agents:
            if not self.frames or agent in seen:
                self.frames.append(0)
                seen = set()
            seen.add(agent)
            self.frames[-1] += 1
        assert len(self.frames) >= STEPS
        assert steps.max() >= 20


@pytest.fixture(scope="module", params=GAMES)
def played(request, tmp_path_factory):
    """A policy as a learner exports it, and the rows of a thousand frames and more of it."""
    folder, guest = tmp_path_factory.mktemp("played"), GUESTS / f"{request.param}.wasm"
    of = GAMES[request.param]
    model = weighty(Ppo(of, Normalizer(of.features, active=True)).policy().model, 5)
    (folder / "policy.onnx").write_bytes(model)
    arkml.record(guest, folder / "policy.onnx", folder / "rows.npz", frames=STEPS + 100)
    return model, Rows(folder / "rows.npz")


def in_python(model, rows, inputs):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_outputs()]
    memories, answers, start = {}, {name: [] for name in names}, 0
    for count in rows.frames:
        part = slice(start, start + count)
        feeds = {name: column[part] for name, column in inputs.items()}
        fresh = np.zeros(MEMORY, np.float32)
        feeds["h_in"] = np.stack([memories.get(agent, fresh) for agent in rows.agents[part]])
        for name, answer in zip(names, session.run(names, feeds), strict=True):
            answers[name].append(answer)
        memories |= zip(rows.agents[part], answers["h_out"][-1], strict=True)
        start += count
    return {name: np.concatenate(parts) for name, parts in answers.items()}


def in_node(modules, model, rows, inputs):
    def text(column):
        return base64.b64encode(np.ascontiguousarray(column, "<f4").tobytes()).decode()

    answers = run_module(
        PLAY,
        {
            "modules": str(modules),
            "model": base64.b64encode(model).decode(),
            "inputs": {
                name: {"width": column.shape[1], "rows": text(column)}
                for name, column in inputs.items()
            },
            "agents": rows.agents,
            "frames": rows.frames,
            "carried": {"h_in": {"output": "h_out", "width": MEMORY}},
        },
    )
    return {
        name: np.frombuffer(base64.b64decode(answer), "<f4").reshape(len(rows.agents), -1)
        for name, answer in answers.items()
    }


def inputs_of(model, rows):
    """The inputs but the memory: no noise, and nothing masked."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    widths = {port.name: port.shape[1] for port in session.get_inputs()}
    assert widths.pop("h_in") == MEMORY
    count = len(rows.agents)
    inputs = {"observations": rows.features, "epsilon": np.zeros((count, 1), np.float32)}
    if "action_masks" in widths:
        inputs["action_masks"] = np.ones((count, widths["action_masks"]), np.float32)
    assert {name: column.shape[1] for name, column in inputs.items()} == widths
    return inputs


def test_it_takes_the_actions_that_our_host_took_in_a_thousand_steps(modules, played):
    model, rows = played
    answers = in_node(modules, model, rows, inputs_of(model, rows))

    acts = rows.acts
    assert acts.sum() > 0.9 * len(acts)
    np.testing.assert_allclose(answers["actions"][acts], rows.taken[acts], **CLOSE)


def test_with_noise_and_masks_it_answers_as_python_does_in_a_thousand_steps(modules, played):
    model, rows = played
    random = np.random.default_rng(0)
    inputs = inputs_of(model, rows)
    inputs["epsilon"] = random.standard_normal(inputs["epsilon"].shape).astype(np.float32)
    if "action_masks" in inputs:
        inputs["action_masks"] = random.integers(0, 2, inputs["action_masks"].shape).astype("f4")
    ours, theirs = in_python(model, rows, inputs), in_node(modules, model, rows, inputs)

    assert ours.keys() == theirs.keys() >= {"actions", "values", "h_out"}
    for name, answer in ours.items():
        np.testing.assert_allclose(theirs[name], answer, **CLOSE, err_msg=name)


def test_the_actions_are_those_of_what_is_remembered(played):
    model, rows = played
    inputs = inputs_of(model, rows)
    remembering = in_python(model, rows, inputs)
    agents, rows.agents = rows.agents, list(range(len(rows.agents)))  # each row a new agent
    forgetting = in_python(model, rows, inputs)
    rows.agents = agents

    assert (np.abs(remembering["actions"] - forgetting["actions"]) > 1e-3).mean() > 0.1
