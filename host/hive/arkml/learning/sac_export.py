"""The policy of soft actor-critic as an ONNX model, checked against its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from arkml.batches import Floats
from arkml.learning.algorithm import Diverged, Layer
from arkml.learning.networks import Network, answer, magnitude
from arkml.learning.normalizer import Scaling
from arkml.learning.policy_graph import PolicyGraph, require_close, run, samples
from arkml.learning.sac_state import CRITICS, LOG_STD


@dataclass(frozen=True, slots=True)
class SacWeights:
    """
    The weights of a policy and its scaling, copies that never change.

    The actor ends in 2 * A outputs: means, then logarithms of deviations. The layers of `critics`
    have the critics along their first axis; they take scaled features and actions.
    """

    scaling: Scaling
    actor: Network
    critics: Network

    @property
    def actions(self) -> int:
        """Number of actions."""
        return len(self.actor[-1].bias) // 2

    def is_finite(self) -> bool:
        """Return True if all weights are finite."""
        layers = (*self.actor, *self.critics)
        return all(np.isfinite(x.weight).all() and np.isfinite(x.bias).all() for x in layers)

    def critic(self, number: int) -> Network:
        """Return one of the critics."""
        return [Layer(layer.weight[number], layer.bias[number]) for layer in self.critics]


class Answer(NamedTuple):
    """
    The answer of a policy to a batch.

    Attributes:
        actions: float32, [n, A].
        values: float32, [n, 1], in the guest's units of reward.
        action_scale: The scale of the rounding errors of actions.
        value_scale: The scale of the rounding errors of values.

    """

    actions: Floats
    values: Floats
    action_scale: float
    value_scale: float


def act(weights: SacWeights, observations: Floats, epsilon: Floats) -> Answer:
    """
    Answer a batch in numpy.

    Args:
        weights: The weights of the policy.
        observations: Raw observations: float32, [n, F].
        epsilon: Standard normal numbers, or zeros: float32, [n, A].

    """
    inputs = weights.scaling.features(observations)
    mean, log_std = np.split(answer(weights.actor, inputs), 2, axis=1)
    raw = mean + np.exp(np.clip(log_std, *LOG_STD)) * epsilon
    pair = np.concatenate([inputs, np.tanh(mean)], axis=1)
    critics = [weights.critic(number) for number in range(CRITICS)]
    reward = np.float32(weights.scaling.reward)
    values = np.minimum(*(answer(critic, pair) for critic in critics)) * reward
    terms = max(magnitude(critic, pair) for critic in critics)
    action_scale = max(float(np.abs(raw).max()), magnitude(weights.actor, inputs))
    return Answer(np.tanh(raw), values, action_scale, terms * float(reward))


def export(weights: SacWeights) -> bytes:
    """
    Return a policy as an ONNX model, after comparing its answers with numpy's.

    Raises Diverged for weights that are not finite, and ExportWrong.
    """
    if not weights.is_finite():
        raise Diverged("weights are not finite")
    model = to_onnx(weights)
    check(model, weights)
    return model


def to_onnx(weights: SacWeights) -> bytes:
    """
    Return an ONNX model of a policy, with its scaling.

    Inputs, float32: `observations`, [N, F], and `epsilon`, [N, A], standard normal numbers or
    zeros. Outputs, float32: `actions`, [N, A], tanh(mean + deviation * epsilon), and `values`,
    [N, 1], the lower of the critics' returns for the action without epsilon, in the guest's units
    of reward.
    """
    graph = PolicyGraph()
    features, actions = len(weights.scaling.mean), weights.actions
    inputs = graph.normalized("observations", weights.scaling)
    *body, head = weights.actor
    hidden = graph.layers(inputs, body, "actor", last=True)
    mean = graph.linear(hidden, Layer(head.weight[:, :actions], head.bias[:actions]), "mean")
    log_std = graph.linear(hidden, Layer(head.weight[:, actions:], head.bias[actions:]), "log_std")
    bounds = [graph.weight(f"log_std_{n}", np.float32(v)) for n, v in enumerate(LOG_STD)]
    deviation = graph.node("Exp", [graph.node("Clip", [log_std, *bounds])])
    noise = graph.node("Mul", [deviation, "epsilon"])
    graph.node("Tanh", [graph.node("Add", [mean, noise])], "actions")
    pair = graph.node("Concat", [inputs, graph.node("Tanh", [mean])], axis=1)
    returns = [
        graph.layers(pair, weights.critic(number), f"critic_{number}", last=False)
        for number in range(CRITICS)
    ]
    scale = graph.weight("reward_scale", np.float32(weights.scaling.reward))
    graph.node("Mul", [graph.node("Min", returns), scale], "values")
    widths = {"observations": features, "epsilon": actions}
    return graph.model(widths, {"actions": actions, "values": 1})


def check(model: bytes, weights: SacWeights) -> None:
    """
    Compare a model with the answers of numpy, at average, typical and extreme observations.

    Raises ExportWrong.
    """
    observations, epsilon = samples(weights.scaling, weights.actions)
    expected = act(weights, observations, epsilon)
    inputs = {"observations": observations, "epsilon": epsilon}
    actions, values = run(model, inputs, ["actions", "values"])
    require_close("actions", actions, expected.actions, expected.action_scale)
    require_close("values", values, expected.values, expected.value_scale)
