"""ONNX models of policy weights, checked against the learner."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from arkml.batches import Floats
from arkml.learning.algorithm import Answer, PolicyWeights
from arkml.learning.policy_graph import PolicyGraph, require_close, run, samples

LOG_STD = (-20.0, 2.0)
"""Bounds of the logarithm of the standard deviation, as in stable-baselines3."""

ReferenceAnswer = Callable[[Floats, Floats], Answer]
"""Answers observations and epsilon as `Exportable.answer` does."""


def to_onnx(weights: PolicyWeights) -> bytes:
    """
    Return an ONNX model of a policy, with its normalization.

    Inputs, float32: `observations`, [N, F], and `epsilon`, [N, A], standard normal numbers or
    zeros. Outputs, float32: `actions`, [N, A], tanh(mean + deviation * epsilon), and `values`,
    [N, 1], the lower of the critics' returns for the action without epsilon, in the guest's units
    of reward.
    """
    graph = PolicyGraph()
    features = len(weights.scaling.mean)
    actions = len(weights.mean.bias)
    inputs = graph.normalized("observations", weights.scaling)
    hidden = graph.layers(inputs, weights.body, "actor", last=True)
    mean = graph.linear(hidden, weights.mean, "mean")
    log_std = graph.linear(hidden, weights.log_std, "log_std")
    bounds = [graph.weight(f"log_std_{n}", np.float32(v)) for n, v in enumerate(LOG_STD)]
    deviation = graph.node("Exp", [graph.node("Clip", [log_std, *bounds])])
    noise = graph.node("Mul", [deviation, "epsilon"])
    graph.node("Tanh", [graph.node("Add", [mean, noise])], "actions")
    pair = graph.node("Concat", [inputs, graph.node("Tanh", [mean])], axis=1)
    returns = [
        graph.layers(pair, critic, f"critic_{number}", last=False)
        for number, critic in enumerate(weights.critics)
    ]
    scale = graph.weight("reward_scale", np.float32(weights.scaling.reward))
    graph.node("Mul", [graph.node("Min", returns), scale], "values")
    inputs_of = {"observations": features, "epsilon": actions}
    return graph.model(inputs_of, {"actions": actions, "values": 1})


def check(model: bytes, weights: PolicyWeights, reference: ReferenceAnswer) -> None:
    """
    Compare a model with the learner's own answers, at average, typical and extreme observations.

    Raises ExportWrong.
    """
    observations, epsilon = samples(weights.scaling, len(weights.mean.bias))
    expected = reference(observations, epsilon)
    inputs = {"observations": observations, "epsilon": epsilon}
    actions, values = run(model, inputs, ["actions", "values"])
    require_close("actions", actions, expected.actions, expected.largest)
    require_close("values", values, expected.values, float(np.abs(expected.values).max()))
