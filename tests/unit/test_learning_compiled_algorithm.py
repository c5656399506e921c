"""What a further algorithm needs beside its networks and its update: nothing, as this one shows."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from arkml.abi.codes import SnapshotFormat
from arkml.hive.protocol.rows import RowColumns, RowKind
from arkml.hive.protocol.settings import Settings
from arkml.learning import policy_graph
from arkml.learning.algorithm import Diverged, State
from arkml.learning.checkpoint_files import CheckpointDamaged
from arkml.learning.compiled_algorithm import ReplayAlgorithm
from arkml.learning.networks import Network, answer, magnitude, make_network, mapped
from arkml.learning.normalizer import Normalizer, Scaling
from arkml.learning.policy_graph import ExportWrong, require_close, run, samples, tensors_of
from arkml.policies.library import PolicyLibrary
from arkml.policies.model_cache import ModelCache


class ClonedState(NamedTuple):
    """An actor after `n_opts` updates."""

    actor: Any
    n_opts: Any


@dataclass(frozen=True, slots=True)
class ClonedWeights:
    """An actor whose outputs are actions, and its scaling."""

    scaling: Scaling
    actor: Network

    def tensors(self):
        return tensors_of(self.scaling, {"actor": self.actor})

    def build(self, graph):
        actions = graph.layers(graph.normalized("observations"), "actor")
        graph.node("Identity", [actions], "actions")
        return {"observations": 2}, {"actions": 1}

    def check(self, model):
        observations, _ = samples(self.scaling, 1)
        (actions,) = run(model, {"observations": observations}, ["actions"])
        inputs = self.scaling.features(observations)
        largest = magnitude(self.actor, inputs)
        require_close("actions", actions, answer(self.actor, inputs), largest)


class Cloned(ReplayAlgorithm):
    """Moves its actions toward those of the rows."""

    def __init__(self, settings, normalizer):
        actor = make_network(np.random.default_rng(settings.seed), [settings.features, 8, 1])
        super().__init__(settings, normalizer, ClonedState(actor, np.int32(0)), _load)

    def weights(self):
        return ClonedWeights(self._normalizer.current, mapped(np.array, self._state.actor))

    def _rates(self):
        return np.float32(self._settings.learning_rate_init)

    def _tagged(self, *losses):
        return dict(zip(["train/loss"], losses, strict=True))

    def _described(self):
        return {}


def _load():
    import jax
    import jax.numpy as jnp

    from arkml.learning.updates import forward, repeat

    class Loss(NamedTuple):
        squares: Any

    def make_updates(state, block, count, key, rate):
        def loss_of(actor, number):
            return jnp.square(forward(actor, block.features[number]) - block.actions[number]).mean()

        def make_update(number, state):
            loss, gradients = jax.value_and_grad(loss_of)(state.actor, number)
            actor = jax.tree.map(lambda value, slope: value - rate * slope, state.actor, gradients)
            return ClonedState(actor, state.n_opts + 1), Loss(loss), ()

        del key
        return repeat(make_update, state, count, Loss, ())[0]

    return make_updates


def cloned(**changes):
    settings = Settings(
        2, 1, hidden=8, batch_size=16, memory_min_size=10, memory_max_size=1_000,
        learning_rate_init=0.1, **changes,
    )  # fmt: skip
    made = Cloned(settings, Normalizer(2, active=False))
    rows = RowColumns.empty(200, 2, 1)
    rows.step[:] = np.arange(200)
    rows.features[:] = np.random.default_rng(0).standard_normal((200, 2))
    rows.action[:] = np.clip(0.5 * rows.features[:, :1], -1, 1)
    made.buffer.add(0, RowKind.TRAINING, rows)
    return made


def flat(algorithm):
    return {name: tensor.tolist() for name, tensor in algorithm.state().tensors.items()}


def test_it_learns_and_its_policy_acts_in_a_host():
    made = cloned()
    first = made.train(1)
    last = made.train(300)
    policy = PolicyLibrary(ModelCache(seconds=60)).load(
        made.policy().model, SnapshotFormat.ONNX, 2, 1
    )

    assert last["train/loss"] < 0.1 * first["train/loss"]
    assert last["train/n_updates"] == made.n_opts == 301
    assert last["train/learning_rate"] == 0.1
    assert set(made.metrics()) == {"replay/fill", "replay/demonstration_share"}
    assert policy.num_actions == 1


def test_it_continues_bit_for_bit():
    made = cloned()
    made.train(5)
    other = cloned(seed=7)
    other.restore(made.state())

    assert flat(other) == flat(made)
    assert other.train(5) == made.train(5)
    assert flat(other) == flat(made)
    assert other.n_opts == 10


@pytest.mark.parametrize(
    "broken",
    [
        lambda state: State({**state.tensors, "more": np.zeros(1)}, state.plain),
        lambda state: State(state.tensors, {**state.plain, "random": {}}),
        lambda state: State(state.tensors, {}),
    ],
    ids=["another tensor", "no generator", "no facts"],
)
def test_a_state_that_does_not_fit_leaves_no_trace(broken):
    made, other = cloned(), cloned()
    made.train(5)

    with pytest.raises(CheckpointDamaged, match="does not fit"):
        other.restore(broken(made.state()))
    assert flat(other) == flat(cloned())
    assert other.n_opts == 0
    assert other.state().plain == cloned().state().plain


def test_updates_that_diverge_are_not_applied():
    made = cloned()
    before = flat(made)
    made._state.actor[0].bias[:] = np.float32(3e38)

    with pytest.raises(Diverged, match="not finite after update 0"):
        made.train(2)
    assert made.n_opts == 0
    made._state.actor[0].bias[:] = 0
    assert flat(made) == before


def test_a_graph_is_built_once_and_each_policy_has_its_own_weights(monkeypatch):
    made = cloned()
    made.policy()
    monkeypatch.setattr(policy_graph, "PolicyGraph", None)
    made.train(3)
    model = made.policy().model
    monkeypatch.undo()

    assert model == policy_graph.to_onnx(made.weights())


def test_an_export_that_answers_otherwise_is_refused(monkeypatch):
    made = cloned()
    made.policy()
    tensors = made.weights().tensors()
    monkeypatch.setattr(ClonedWeights, "tensors", lambda _: tensors)
    made.train(3)

    with pytest.raises(ExportWrong, match="actions"):
        made.policy()
