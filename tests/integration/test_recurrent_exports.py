"""Recurrent policies of others, as torch exports them, are recognized and act as in torch."""

import warnings

import gymnasium as gym
import numpy as np
import onnx
import pytest
import torch
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from tests.integration.command_line import GUESTS, arkml
from torch import nn

from arkml import record

ECHO = GUESTS / "c_echo.wasm"  # four features, one branch of three choices, no masks
FEATURES, CHOICES, UNITS = 4, 3, 16
AGENTS, FRAMES = 16, 60


class Lstm(nn.Module):
    """The policy of RecurrentPPO of sb3-contrib: its scores, and the state of its LSTM."""

    states = 2

    def __init__(self):
        super().__init__()
        self.policy = RecurrentActorCriticPolicy(
            gym.spaces.Box(-1, 1, (FEATURES,), np.float32), gym.spaces.Discrete(CHOICES),
            lambda _: 0.0, lstm_hidden_size=UNITS, net_arch=[UNITS],
        )  # fmt: skip
        nn.init.orthogonal_(self.policy.action_net.weight)

    def forward(self, seen, hidden, cell):
        begins = torch.zeros(seen.shape[0])
        chosen, (hidden, cell) = self.policy.get_distribution(seen, (hidden, cell), begins)
        return chosen.distribution.logits, hidden, cell


class Gru(nn.Module):
    """A policy as trainers of one file have it: a torch GRU that takes steps first."""

    states = 1

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(FEATURES, UNITS)
        self.memory = nn.GRU(UNITS, UNITS)
        self.last = nn.Linear(UNITS, CHOICES)

    def forward(self, seen, hidden):
        taken, hidden = self.memory(torch.tanh(self.first(seen)).unsqueeze(0), hidden)
        return self.last(taken.squeeze(0)), hidden


def exported(module, path, **options):
    """Write the file that torch's exporter makes by tracing, for rows of any number."""
    given = (torch.zeros(1, FEATURES), *torch.zeros(module.states, 1, 1, UNITS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, given, path, dynamo=False, opset_version=17, **options)
    return onnx.load(path).graph


def in_torch(module, rows):
    """The choices of highest score in the rows of a recording, and those without a state."""
    states, remembering, forgetting = {}, [], []
    agents = rows["agent"].tolist()
    assert agents[:AGENTS] == list(range(AGENTS))
    assert len(agents) % AGENTS == 0
    fresh = torch.zeros(module.states, 1, UNITS)
    with torch.no_grad():
        for start in range(0, len(agents), AGENTS):
            acting = agents[start : start + AGENTS]  # each once: the agents of one frame
            seen = torch.from_numpy(rows["features"][start : start + AGENTS])
            before = torch.stack([states.get(agent, fresh) for agent in acting], dim=2)
            scores, *after = module(seen, *before)
            states.update(zip(acting, torch.stack(after).unbind(2), strict=True))
            remembering += scores.argmax(dim=1).tolist()
            none = torch.zeros_like(before)
            forgetting += module(seen, *none)[0].argmax(dim=1).tolist()
    return np.array(remembering), np.array(forgetting)


@pytest.fixture(params=[Lstm, Gru])
def module(request):
    torch.manual_seed(3)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield request.param().eval()
    torch.set_num_threads(threads)


def letters(module):
    """Names that say nothing, and the axes of rows, which are the second of a state."""
    ins, outs = "klm"[: 1 + module.states], "xyz"[: 1 + module.states]
    axes = {name: {int(name not in "kx"): "rows"} for name in ins + outs}
    return {"input_names": [*ins], "output_names": [*outs], "dynamic_axes": axes}


def test_states_are_recognized_by_the_graph_where_names_say_nothing(module, tmp_path):
    path = tmp_path / "theirs.onnx"
    exported(module, path, **letters(module))
    record(ECHO, path, tmp_path / "rows.npz", frames=FRAMES)
    with np.load(tmp_path / "rows.npz") as file:
        rows = {name: file[name] for name in ("agent", "state", "features", "action")}
    acts = ~np.isin(rows["state"], [1, 2])  # no action follows on the end of an episode
    remembering, forgetting = in_torch(module, rows)

    np.testing.assert_array_equal(rows["action"][acts, 0], remembering[acts])
    assert (remembering[acts] != forgetting[acts]).mean() > 0.05
    told = arkml("describe", path, "--json").json["acts"]
    states = ["l from y", "m from z"][: module.states]
    assert told == f"x acts, no value, states: {', '.join(states)}"


def test_a_file_for_one_row_with_names_of_torch_acts_when_its_scores_are_named(module, tmp_path):
    path = tmp_path / "theirs.onnx"
    graph = exported(module, path)
    scores = graph.output[0].name
    record(ECHO, path, tmp_path / "rows.npz", frames=FRAMES, outputs=scores)
    with np.load(tmp_path / "rows.npz") as file:
        rows = {name: file[name] for name in ("agent", "state", "features", "action")}
    acts = ~np.isin(rows["state"], [1, 2])
    remembering, _ = in_torch(module, rows)

    np.testing.assert_array_equal(rows["action"][acts, 0], remembering[acts])
