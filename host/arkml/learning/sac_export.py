"""The policy of soft actor-critic as an ONNX model, checked against its weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from arkml.batches import Floats
from arkml.learning.algorithm import Diverged, ExportWrong, Layer
from arkml.learning.networks import Network, answer
from arkml.learning.normalizer import CLIP, Scaling
from arkml.learning.sac_state import CRITICS, LOG_STD

TOLERANCE = 1e-5
"""Largest error of an exported model: absolute for numbers up to 1, relative above."""

_OPSET = 17
_IR_VERSION = 8
_ROWS = 16


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

    actions: float32, [n, A]. values: float32, [n, 1], in the guest's units of reward. `largest` is
    the largest absolute number that enters a tanh, the scale of rounding errors.
    """

    actions: Floats
    values: Floats
    largest: float


def act(weights: SacWeights, observations: Floats, epsilon: Floats) -> Answer:
    """Answer a batch in numpy. observations: float32, [n, F]. epsilon: float32, [n, A]."""
    inputs = weights.scaling.features(observations)
    mean, log_std = np.split(answer(weights.actor, inputs), 2, axis=1)
    raw = mean + np.exp(np.clip(log_std, *LOG_STD)) * epsilon
    pair = np.concatenate([inputs, np.tanh(mean)], axis=1)
    lowest = np.minimum(*(answer(weights.critic(number), pair) for number in range(CRITICS)))
    largest = max(float(np.abs(raw).max()), float(np.abs(mean).max()))
    return Answer(np.tanh(raw), lowest * np.float32(weights.scaling.reward), largest)


def export(weights: SacWeights) -> bytes:
    """
    Return a policy as an ONNX model whose answers have been compared with those of numpy.

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
    graph = _Graph()
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
    ports = {"observations": features, "epsilon": actions, "actions": actions, "values": 1}
    return graph.model(ports)


def check(model: bytes, weights: SacWeights) -> None:
    """
    Compare a model with the answers of numpy, at average, typical and extreme observations.

    Raises ExportWrong.
    """
    random = np.random.default_rng(0)
    shape = (_ROWS, len(weights.scaling.mean))
    spread = random.standard_normal(shape) * np.logspace(-1, 2, _ROWS)[:, None]
    spread[0] = 0.0
    observations = (weights.scaling.mean + spread / weights.scaling.inverse).astype(np.float32)
    epsilon = random.standard_normal((_ROWS, weights.actions)).astype(np.float32)
    epsilon[1] = 0.0
    expected = act(weights, observations, epsilon)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    inputs = {"observations": observations, "epsilon": epsilon}
    actions, values = session.run(["actions", "values"], inputs)
    _compare("actions", actions, expected.actions, expected.largest)
    _compare("values", values, expected.values, float(np.abs(expected.values).max()))


def _compare(name: str, actual: Floats, expected: Floats, largest: float) -> None:
    error = float(np.abs(actual - expected).max())
    if not error <= TOLERANCE * max(1.0, largest):  # NaN compares as False
        raise ExportWrong(
            f"the exported {name} differ from the learner's by {error:g},"
            f" with numbers up to {largest:g}"
        )


class _Graph:
    """An ONNX graph under construction; its methods return names of tensors."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._weights: list[Any] = []

    def weight(self, name: str, values: Any) -> str:
        self._weights.append(numpy_helper.from_array(np.asarray(values, np.float32), name))
        return name

    def node(self, kind: str, inputs: Sequence[str], name: str = "", **attributes: Any) -> str:
        name = name or f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def normalized(self, observations: str, scaling: Scaling) -> str:
        mean = self.weight("feature_mean", scaling.mean)
        inverse = self.weight("feature_inverse", scaling.inverse)
        bounds = [self.weight("feature_low", -CLIP), self.weight("feature_high", CLIP)]
        shifted = self.node("Sub", [observations, mean])
        return self.node("Clip", [self.node("Mul", [shifted, inverse]), *bounds])

    def linear(self, source: str, layer: Layer, name: str) -> str:
        weight = self.weight(f"{name}_weight", layer.weight)
        bias = self.weight(f"{name}_bias", layer.bias)
        return self.node("Gemm", [source, weight, bias])

    def layers(self, source: str, layers: Sequence[Layer], name: str, *, last: bool) -> str:
        """Add linear layers with a ReLU after each, after the last one only with `last`."""
        for number, layer in enumerate(layers):
            source = self.linear(source, layer, f"{name}_{number}")
            if last or number + 1 < len(layers):
                source = self.node("Relu", [source])
        return source

    def model(self, ports: dict[str, int]) -> bytes:
        values = {name: _port(name, width) for name, width in ports.items()}
        graph = helper.make_graph(
            self._nodes,
            "policy",
            [values["observations"], values["epsilon"]],
            [values["actions"], values["values"]],
            self._weights,
        )
        opset = helper.make_opsetid("", _OPSET)
        model = helper.make_model(
            graph, opset_imports=[opset], ir_version=_IR_VERSION, producer_name="arkml"
        )
        onnx.checker.check_model(model)
        data: bytes = model.SerializeToString()
        return data


def _port(name: str, width: int) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width])
