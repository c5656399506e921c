"""ONNX models of policy weights, checked against the learner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from arkml.batches import Floats
from arkml.errors import HiveError
from arkml.learning.algorithm import Answer, Layer, PolicyWeights
from arkml.learning.normalizer import CLIP

TOLERANCE = 1e-5
"""Largest error of an exported model: absolute for numbers up to 1, relative above."""

LOG_STD = (-20.0, 2.0)
"""Bounds of the logarithm of the standard deviation, as in stable-baselines3."""

_OPSET = 17
_IR_VERSION = 8
_ROWS = 16


class ExportWrong(HiveError):
    """The answers of an exported model differ from the learner's."""


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
    graph = _Graph()
    features = len(weights.scaling.mean)
    actions = len(weights.mean.bias)
    inputs = graph.normalized("observations", weights)
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
    ports = {"observations": features, "epsilon": actions, "actions": actions, "values": 1}
    return graph.model(ports)


def check(model: bytes, weights: PolicyWeights, reference: ReferenceAnswer) -> None:
    """
    Compare a model with the learner's own answers, at average, typical and extreme observations.

    Raises ExportWrong.
    """
    random = np.random.default_rng(0)
    shape = (_ROWS, len(weights.scaling.mean))
    spread = random.standard_normal(shape) * np.logspace(-1, 2, _ROWS)[:, None]
    spread[0] = 0.0
    observations = (weights.scaling.mean + spread / weights.scaling.inverse).astype(np.float32)
    epsilon = random.standard_normal((_ROWS, len(weights.mean.bias))).astype(np.float32)
    epsilon[1] = 0.0
    expected = reference(observations, epsilon)
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

    def normalized(self, observations: str, weights: PolicyWeights) -> str:
        mean = self.weight("feature_mean", weights.scaling.mean)
        inverse = self.weight("feature_inverse", weights.scaling.inverse)
        bounds = [self.weight("feature_low", -CLIP), self.weight("feature_high", CLIP)]
        shifted = self.node("Sub", [observations, mean])
        return self.node("Clip", [self.node("Mul", [shifted, inverse]), *bounds])

    def linear(self, source: str, layer: Layer, name: str) -> str:
        weight = self.weight(f"{name}_weight", layer.weight)
        bias = self.weight(f"{name}_bias", layer.bias)
        return self.node("Gemm", [source, weight, bias], transB=1)

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
