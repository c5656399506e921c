"""ONNX graphs of policies under construction, and their comparison with the learner's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from arkml.base.native_imports import import_onnxruntime
from arkml.batches import Floats
from arkml.errors import HiveError
from arkml.learning.algorithm import Layer
from arkml.learning.normalizer import CLIP, Scaling

ort = import_onnxruntime()

TOLERANCE = 1e-5
"""Largest error of an exported model: absolute for numbers up to 1, relative above."""

_OPSET = 17
_IR_VERSION = 8
_ROWS = 16


class ExportWrong(HiveError):
    """The answers of an exported model differ from the learner's."""


class PolicyGraph:
    """An ONNX graph under construction; its methods return names of tensors."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._weights: list[Any] = []

    def weight(self, name: str, values: Any) -> str:
        """Add float32 constants."""
        return self._constant(name, np.asarray(values, np.float32))

    def integers(self, name: str, values: Any) -> str:
        """Add int64 constants."""
        return self._constant(name, np.asarray(values, np.int64))

    def node(self, kind: str, inputs: Sequence[str], name: str = "", **attributes: Any) -> str:
        """
        Add a node with one output.

        Args:
            kind: The operator, for example "Gemm".
            inputs: The names of its inputs.
            name: The name of the output, empty for a generated one.
            attributes: The attributes of the operator.

        Returns:
            The name of the output.

        """
        name = name or f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def normalized(self, observations: str, scaling: Scaling) -> str:
        """Add the normalization of features."""
        mean = self.weight("feature_mean", scaling.mean)
        inverse = self.weight("feature_inverse", scaling.inverse)
        bounds = [self.weight("feature_low", -CLIP), self.weight("feature_high", CLIP)]
        shifted = self.node("Sub", [observations, mean])
        return self.node("Clip", [self.node("Mul", [shifted, inverse]), *bounds])

    def linear(self, source: str, layer: Layer, name: str) -> str:
        """Add one linear layer."""
        weight = self.weight(f"{name}_weight", layer.weight)
        bias = self.weight(f"{name}_bias", layer.bias)
        return self.node("Gemm", [source, weight, bias])

    def layers(self, source: str, layers: Sequence[Layer], name: str, *, last: bool) -> str:
        """
        Add linear layers with a ReLU between them.

        Args:
            source: The name of the input: float32, [n, width].
            layers: The weights.
            name: The prefix of the names of the weights.
            last: Whether a ReLU also follows the last layer.

        Returns:
            The name of the output.

        """
        for number, layer in enumerate(layers):
            source = self.linear(source, layer, f"{name}_{number}")
            if last or number + 1 < len(layers):
                source = self.node("Relu", [source])
        return source

    def columns(self, source: str, widths: Sequence[int]) -> tuple[str, ...]:
        """Split the columns of a matrix into parts of these widths; a width of 0 gives ""."""
        wide = [width for width in widths if width]
        if len(wide) == 1:
            return tuple(source if width else "" for width in widths)
        place = len(self._nodes)
        sizes = self.integers(f"widths_{place}", wide)
        names = [f"split_{place}_{part}" if width else "" for part, width in enumerate(widths)]
        used = [name for name in names if name]
        self._nodes.append(helper.make_node("Split", [source, sizes], used, axis=1))
        return tuple(names)

    def model(self, inputs: Mapping[str, int], outputs: Mapping[str, int]) -> bytes:
        """Return the model. inputs, outputs: widths of float32, [N, width], by name."""
        graph = helper.make_graph(
            self._nodes,
            "policy",
            [_port(name, width) for name, width in inputs.items()],
            [_port(name, width) for name, width in outputs.items()],
            self._weights,
        )
        opset = helper.make_opsetid("", _OPSET)
        model = helper.make_model(
            graph, opset_imports=[opset], ir_version=_IR_VERSION, producer_name="arkml"
        )
        onnx.checker.check_model(model)
        data: bytes = model.SerializeToString()
        return data

    def _constant(self, name: str, values: Any) -> str:
        self._weights.append(numpy_helper.from_array(values, name))
        return name


def samples(scaling: Scaling, actions: int) -> tuple[Floats, Floats]:
    """
    Return average, typical and extreme observations, and epsilon, to compare answers.

    float32, [n, F] and [n, actions]. The epsilon of the second row is zero.
    """
    random = np.random.default_rng(0)
    shape = (_ROWS, len(scaling.mean))
    spread = random.standard_normal(shape) * np.logspace(-1, 2, _ROWS)[:, None]
    spread[0] = 0.0
    observations = (scaling.mean + spread / scaling.inverse).astype(np.float32)
    epsilon = random.standard_normal((_ROWS, actions)).astype(np.float32)
    epsilon[1] = 0.0
    return observations, epsilon


def run(model: bytes, inputs: Mapping[str, Floats], outputs: Sequence[str]) -> list[Floats]:
    """
    Return the outputs of a model.

    Args:
        model: An ONNX model.
        inputs: The inputs by name: float32, [n, width].
        outputs: The names of the wanted outputs.

    Returns:
        The outputs, in the order of their names: float32, [n, width] each.

    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    answers: list[Floats] = session.run(list(outputs), dict(inputs))
    return answers


def require_close(name: str, actual: Floats, expected: Floats, largest: float) -> None:
    """
    Raise ExportWrong if answers differ by more than rounding.

    Args:
        name: The name of the output, for the message.
        actual: The answers of the model: float32, [n, width].
        expected: The answers of the learner's networks: float32, [n, width].
        largest: The largest absolute number in both, or in the input of a bounded function.

    """
    error = float(np.abs(actual - expected).max(initial=0.0))
    if not error <= TOLERANCE * max(1.0, largest):  # NaN compares as False
        raise ExportWrong(
            f"the exported {name} differ from the learner's by {error:g},"
            f" with numbers up to {largest:g}"
        )


def _port(name: str, width: int) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width])
