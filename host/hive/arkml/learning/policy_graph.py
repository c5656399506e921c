"""Policies as ONNX: a graph that is built once, its weights, and a check of its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from arkml.base.native_imports import import_onnxruntime
from arkml.batches import Floats
from arkml.errors import HiveError
from arkml.learning.algorithm import Diverged, Layer
from arkml.learning.networks import LEAST_OPEN
from arkml.learning.normalizer import CLIP, Scaling
from arkml.learning.tensors import Tensors

ort = import_onnxruntime()

TOLERANCE = 1e-5
"""Largest error of an exported model: absolute for numbers up to 1, relative above."""

INNER = "/"
"""What the names of tensors begin with that are neither inputs nor outputs."""

_OPSET = 15  # the newest that Unity's runtimes before Sentis 2.6 take
_IR_VERSION = 8
_ROWS = 16
_TIMES = 4.0  # the rounding errors of numpy, and those of others that add in another order


Shapes = Mapping[str, int | tuple[int, ...]]
"""The widths of inputs, or their shapes, without the rows."""


class ExportWrong(HiveError):
    """Raised when the answers of an exported model differ from those of the learner's networks."""


class PolicyWeights(Protocol):
    """A copy of the weights and the scaling of a policy, which never changes."""

    def tensors(self) -> Tensors:
        """Return the weights that the graph reads, float32, by the names of the graph's tensors."""

    def build(self, graph: PolicyGraph) -> tuple[Shapes, Mapping[str, int]]:
        """
        Add the policy's nodes to a graph; return input shapes and output widths, each by name.
        """

    def check(self, model: bytes) -> None:
        """Compare the answers of a model with the networks'. Raises ExportWrong."""


class PolicyTemplate:
    """The ONNX file of a run's policies without weights, in which alone the policies differ."""

    def __init__(self, weights: PolicyWeights) -> None:
        """Build the graph of a policy, whose shapes all others share."""
        graph = PolicyGraph(weights.tensors())
        self._file: bytes = graph.model(*weights.build(graph)).SerializeToString()

    def filled(self, tensors: Tensors) -> bytes:
        """Return the ONNX file of a policy with these weights, unchecked."""
        model = onnx.ModelProto.FromString(self._file)  # one message would keep all it ever held
        for one in model.graph.initializer:
            name = one.name.removeprefix(INNER)
            if name in tensors:
                one.raw_data = np.asarray(tensors[name], "<f4").tobytes()
        data: bytes = model.SerializeToString()
        return data


def to_onnx(weights: PolicyWeights) -> bytes:
    """Return the ONNX file of one policy, unchecked."""
    return PolicyTemplate(weights).filled(weights.tensors())


class PolicyGraph:
    """
    An ONNX graph under construction; its methods return names of tensors.

    Inputs and outputs keep their plain names; names of all other tensors begin with INNER, as no
    name of a part does.

    `weights` are the weights by name; each is added to the graph when a node first reads it.
    """

    def __init__(self, weights: Tensors) -> None:
        self._nodes: list[Any] = []
        self._weights = weights
        self._initializers: list[Any] = []
        self._metadata: dict[str, str] = {}

    def weight(self, name: str) -> str:
        """Add the weight with this name to the graph, and return the name of its tensor."""
        return self._add(name, np.asarray(self._weights[name], np.float32))

    def constant(self, name: str, values: Any) -> str:
        """Add float32 constants to the graph, and return their name."""
        return self._add(name, np.asarray(values, np.float32))

    def integers(self, name: str, values: Any) -> str:
        """Add int64 constants to the graph, and return their name."""
        return self._add(name, np.asarray(values, np.int64))

    def note(self, key: str, value: str) -> None:
        """Add an entry to the metadata of the model."""
        self._metadata[key] = value

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
        name = name or f"{INNER}{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def normalized(self, observations: str) -> str:
        """Add nodes that normalize features, with the weights of `tensors_of`."""
        mean, inverse = self.weight("feature_mean"), self.weight("feature_inverse")
        bounds = [self.constant("feature_low", -CLIP), self.constant("feature_high", CLIP)]
        shifted = self.node("Sub", [observations, mean])
        return self.node("Clip", [self.node("Mul", [shifted, inverse]), *bounds])

    def values(self, source: str) -> None:
        """Add nodes for the output `values`, converted to the guest's units of reward."""
        self.node("Mul", [source, self.weight("reward_scale")], "values")

    def linear(self, source: str, name: str) -> str:
        """Add one linear layer, given the name of its input and of the layer."""
        return self.node(
            "Gemm", [source, self.weight(f"{name}_weight"), self.weight(f"{name}_bias")]
        )

    def remembered(self, source: str, before: str, name: str, still: int) -> str:
        """
        Add a recurrent unit, with the weights `encoder`, `gates`, `taken`, `cosine` and `sine`.

        Args:
            source: The name of the features: float32, [n, F].
            before: The name of the previous recurrent state: float32, [n, memory].
            name: The name of the next recurrent state: float32, [n, memory].
            still: How many of the numbers, the first ones, stand still.

        Returns:
            The name of the next recurrent state.

        """
        seen = self.node("Relu", [self.linear(source, "encoder")])
        gates = self.node("Sigmoid", [self.linear(seen, "gates")])
        opened = self.node("Max", [gates, self.constant("least_open", LEAST_OPEN)])
        new = self.node("Tanh", [self.linear(seen, "taken")])
        kept = self.node("Sub", [self.constant("all", 1.0), opened])
        cosine, sine = self.weight("cosine"), self.weight("sine")
        halves = (len(self._weights["cosine"]),) * 2
        share = self._share(opened, before, still, halves[0] - still)
        real, imaginary = self.columns(before, halves)
        after = []
        for (kind, left, right), taken in zip(
            (("Sub", real, imaginary), ("Add", imaginary, real)),
            self.columns(new, halves),
            strict=True,
        ):
            along, across = self.node("Mul", [left, cosine]), self.node("Mul", [right, sine])
            turned = self.node("Mul", [kept, self.node(kind, [along, across])])
            after.append(self.node("Add", [turned, self.node("Mul", [share, taken])]))
        return self.node("Concat", after, name, axis=1)

    def _share(self, opened: str, before: str, still: int, turning: int) -> str:
        """Add nodes for the share of what is taken in that is added, and return its name."""
        holding, moving = self.columns(opened, (still, turning))
        largest = self.node("ReduceMax", [self.node("Abs", [before])], axes=[1], keepdims=1)
        is_new = self.node("Equal", [largest, self.constant("none", 0.0)])
        holding = self.node("Where", [is_new, self.constant("all", 1.0), holding])
        if not moving:
            return holding
        rest = self.node("Sub", [self.constant("two", 2.0), moving])
        root = self.node("Sqrt", [self.node("Mul", [moving, rest])])
        return self.node("Concat", [holding, root], axis=1)

    def layers(self, source: str, name: str, *, beside: str = "", last: bool = False) -> str:
        """
        Add the linear layers of a network with a ReLU between them.

        Args:
            source: The name of the input: float32, [n, width].
            name: The name of the network in `tensors_of`.
            beside: The name of a tensor that the second layer takes beside the outputs of the
                first, or "".
            last: Whether a ReLU also follows the last layer.

        Returns:
            The name of the output.

        """
        number = 0
        while f"{name}_{number}_weight" in self._weights:
            if number:
                source = self.node("Relu", [source])
            if number == 1 and beside:
                source = self.node("Concat", [source, beside], axis=1)
            source = self.linear(source, f"{name}_{number}")
            number += 1
        return self.node("Relu", [source]) if last and number else source

    def columns(self, source: str, widths: Sequence[int]) -> tuple[str, ...]:
        """
        Split the columns of a matrix into parts of these widths; return names, "" for width 0.
        """
        wide = [width for width in widths if width]
        if len(wide) == 1:
            return tuple(source if width else "" for width in widths)
        place = len(self._nodes)
        sizes = self.integers(f"widths_{place}", wide)
        first = f"{INNER}split_{place}"
        names = [f"{first}_{part}" if width else "" for part, width in enumerate(widths)]
        used = [name for name in names if name]
        self._nodes.append(helper.make_node("Split", [source, sizes], used, axis=1))
        return tuple(names)

    def model(self, inputs: Shapes, outputs: Mapping[str, int]) -> Any:
        """
        Return the model as `onnx.ModelProto`, checked.

        inputs: widths of float32, [N, width], or shapes, [N, *shape], by name. outputs: widths.
        """
        graph = helper.make_graph(
            self._nodes,
            "policy",
            [_port(name, shape) for name, shape in inputs.items()],
            [_port(name, width) for name, width in outputs.items()],
            self._initializers,
        )
        opset = helper.make_opsetid("", _OPSET)
        model = helper.make_model(
            graph, opset_imports=[opset], ir_version=_IR_VERSION, producer_name="arkml"
        )
        helper.set_model_props(model, self._metadata)
        onnx.checker.check_model(model)
        return model

    def _add(self, name: str, values: Any) -> str:
        inner = INNER + name
        if inner not in {one.name for one in self._initializers}:
            self._initializers.append(numpy_helper.from_array(values, inner))
        return inner


def tensors_of(scaling: Scaling, networks: Mapping[str, Sequence[Layer]]) -> Tensors:
    """Return the weights of a scaling, and of the layers of networks by the networks' names."""
    tensors = {
        "feature_mean": scaling.mean,
        "feature_inverse": scaling.inverse,
        "reward_scale": np.asarray(scaling.reward, np.float32),
    }
    for name, layers in networks.items():
        for number, layer in enumerate(layers):
            tensors |= layer_tensors(f"{name}_{number}", layer)
    return tensors


def layer_tensors(name: str, layer: Layer) -> Tensors:
    """Return the weights of a layer under the names that `PolicyGraph.linear` reads."""
    return {f"{name}_weight": layer.weight, f"{name}_bias": layer.bias}


def samples(scaling: Scaling, actions: int) -> tuple[Floats, Floats]:
    """
    Return average, typical and extreme observations, and noise (epsilon), to test a policy.

    Both are float32, [n, F] and [n, actions]. The noise of the second row is zero.
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
    Run an ONNX model, and return its outputs.

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


def require_numbers(model: bytes) -> None:
    """Raise Diverged if a weight of an ONNX model is NaN; infinity may be a bound."""
    for weight in onnx.load_from_string(model).graph.initializer:
        values = numpy_helper.to_array(weight)
        if values.dtype.kind == "f" and np.isnan(values).any():
            raise Diverged(f"the weight {weight.name!r} of the policy is NaN")


def require_close(
    name: str, actual: Floats, expected: Floats, largest: float, exact: Any = None
) -> None:
    """
    Raise ExportWrong if answers differ by more than rounding.

    Args:
        name: The name of the output, for the message.
        actual: The answers of the model: float32, [n, width].
        expected: The answers of the learner's networks: float32, [n, width].
        largest: The largest absolute number in both arrays, or in the input of a bounded function.
        exact: The answers of the learner's networks in float64, needed where rounding errors depend
            on more than the size of numbers; the model's error may be a few times that of the
            networks in float32.

    """
    error = float(np.abs(actual - expected).max(initial=0.0))
    off = 0.0 if exact is None else float(np.abs(exact - expected).max(initial=0.0))
    if not error <= max(TOLERANCE * max(1.0, largest), _TIMES * off):  # NaN compares as False
        raise ExportWrong(
            f"the exported {name} differ from the learner's by {error:g},"
            f" with numbers up to {largest:g}"
        )


def _port(name: str, shape: int | tuple[int, ...]) -> Any:
    own = (shape,) if isinstance(shape, int) else shape
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", *own])
