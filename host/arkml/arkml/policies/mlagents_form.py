"""Conversion of policies to the form in which ML-Agents exports them, for Unity's runtime."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from arkml.errors import ModelRejected, ProtocolError
from arkml.hive.protocol.parts import PARTS, WHITE, RowField, fields_of, parts_of_text
from arkml.policies.border import prune

if TYPE_CHECKING:
    import onnx

_VERSION = 3.0  # MLAgents2_0: observations are obs_0, ..., memory an input and an output
_FEATURES, _NOISE, _MASKS = "observations", "epsilon", "action_masks"
_ACTIONS, _VALUES = "actions", "values"
_STATES = {"h_in": "h_out", "frames_in": "frames_out"}  # what is remembered, and images before
_OTHERS = frozenset({_NOISE, _MASKS, *_STATES})
_BRANCHES = "branches"


def as_mlagents(data: bytes) -> bytes:
    """
    Return a policy, a vetted ONNX file of arkml's learners, in the form that ML-Agents exports.

    Inputs: `obs_0`, and `obs_1` and so on for further parts of a row, with the channels of grids
    and images first, images from 0 to 1, and a channel for each category; `action_masks` and
    `epsilon`, which Unity fills with noise, unchanged; and `recurrent_in`, float32, [N, 1, memory],
    with the recurrent state and earlier images. Outputs: `continuous_actions`, `discrete_actions`,
    int64, each [N, count], and both without noise as `deterministic_...`; `recurrent_out`;
    `value_estimate`; and the constants by which Unity knows a model: `version_number`,
    `memory_size`, `continuous_action_output_shape` and `discrete_action_output_shape`.

    Raises ModelRejected for a file with other inputs and outputs than learners of arkml export, and
    for a file with masks whose metadata lacks the sizes of its branches.
    """
    import onnx

    model = onnx.ModelProto.FromString(data)
    inputs, outputs = (_widths(ports) for ports in (model.graph.input, model.graph.output))
    fields = _fields(model)
    seen = [field.name for field in fields] or [_FEATURES]
    _require_ports(inputs, outputs, seen)
    branches = _branches(model, inputs, outputs)
    states = {name: inputs[name] for name in _STATES if name in inputs}
    kept = [_ACTIONS, *(name for name in (_VALUES, *_STATES.values()) if name in outputs)]
    prune(model, kept)
    form = _Form(model)
    form.constant("version_number", [_VERSION])
    form.constant("memory_size", [float(sum(states.values()))])
    for field in fields:
        form.part(field)
    if not fields:
        form.input(_FEATURES, inputs[_FEATURES])
    if _MASKS in inputs:
        form.keep(_MASKS)
    if _NOISE in inputs:
        form.keep(_NOISE)
    if states:
        form.memory(states)
    form.actions(outputs[_ACTIONS] - len(branches), branches)
    if _VALUES in outputs:
        form.output("Identity", [_VALUES], "value_estimate", width=1)
    return form.finished()


def _widths(ports: Collection[onnx.ValueInfoProto]) -> dict[str, int]:
    """Return the widths of ports that are rows, by name; ports of other shapes have 0."""
    widths = {}
    for port in ports:
        sizes = port.type.tensor_type.shape.dim
        widths[port.name] = sizes[1].dim_value if len(sizes) == 2 else 0
    return widths


def _fields(model: onnx.ModelProto) -> list[RowField]:
    """Return the fields of the rows of a policy, none for plain rows. Raises ModelRejected."""
    (text,) = [one.value for one in model.metadata_props if one.key == PARTS] or [""]
    if not text:
        return []
    try:
        return fields_of(parts_of_text(text))
    except ProtocolError as error:
        raise ModelRejected(f"the metadata {PARTS!r} of the model: {error}"[:300]) from None


def _require_ports(
    inputs: Mapping[str, int], outputs: Mapping[str, int], seen: Collection[str]
) -> None:
    """
    Raise ModelRejected for ports that learners of arkml do not export.

    seen: the names of the inputs of observations.
    """
    fits = {*seen} <= inputs.keys() <= {*seen} | _OTHERS and _ACTIONS in outputs
    known = [width for name, width in inputs.items() if name in _OTHERS or name == _FEATURES]
    wide = [*known, *(outputs.get(name, 1) for name in (_ACTIONS, _VALUES, *_STATES.values()))]
    is_state = (inputs.get(before) == outputs.get(after) for before, after in _STATES.items())
    if not fits or not all(wide) or not all(is_state):
        names = f"{', '.join(inputs) or 'none'}, and outputs {', '.join(outputs) or 'none'}"
        raise ModelRejected(
            "only policies that a learner of arkml has exported get the form of ML-Agents, with"
            f" inputs {', '.join(seen)}, {_NOISE}, {_MASKS}, {', '.join(_STATES)} and outputs"
            f" {_ACTIONS}, {_VALUES}, {', '.join(_STATES.values())}: this one has inputs {names}"
        )


def _branches(
    model: onnx.ModelProto, inputs: Mapping[str, int], outputs: Mapping[str, int]
) -> tuple[int, ...]:
    """Return the number of choices of each branch. Raises ModelRejected."""
    if _MASKS not in inputs:
        return ()
    (text,) = [one.value for one in model.metadata_props if one.key == _BRANCHES] or [""]
    sizes = [int(part) for part in text.split(",") if part.isascii() and part.isdigit()]
    if sum(sizes) != inputs[_MASKS] or not 0 < len(sizes) <= outputs[_ACTIONS]:
        raise ModelRejected(
            f"the metadata {_BRANCHES!r} of the model is {text[:80]!r}: it takes the choices of"
            f" each branch, such as '3,2', {inputs[_MASKS]} together, as learners of arkml write"
            " them"
        )
    return tuple(sizes)


class _Form:
    """The graph of a policy that gets other inputs and outputs around its nodes."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._ports = {port.name: port for port in (*model.graph.input, *model.graph.output)}
        self._before: list[onnx.NodeProto] = []
        self._after: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._observations = 0
        self._outputs: list[onnx.ValueInfoProto] = []
        self._prefix = "mlagents/"
        taken = {weight.name for weight in model.graph.initializer}
        taken.update(name for node in model.graph.node for name in node.output)
        while any(name.startswith(self._prefix) for name in taken):
            self._prefix += "_"

    def constant(self, name: str, values: Sequence[Any]) -> None:
        """Add an output that is a constant, as an exporter of torch does."""
        from onnx import TensorProto, helper

        weight = self._weight(name, values, "float32")
        self._before.append(helper.make_node("Identity", [weight], [name]))
        shape = [1, len(values[0])] if isinstance(values[0], list) else [len(values)]
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def input(self, name: str, *shape: int) -> None:
        """Have an input of float32, [N, *shape], as the next observation."""
        new = self._observation(*shape)
        self._before.append(self._node("Identity", [new], self._apart(name)))

    def part(self, field: RowField) -> None:
        """Have an input of observations as sensors of ML-Agents have it."""
        part, shape = field.part, field.shape
        if field.kind not in ("grid", "image"):
            self.input(field.name, *shape)
            return
        height, width = shape[:2]
        if part.categories:
            new = self._observation(part.categories, height, width)
            number = self._inner(self._node("ArgMax", [new], "", axis=1, keepdims=0))
            self._before.append(self._node("Cast", [number], self._apart(field.name), to=1))
            return
        new = self._observation(shape[2], height, width)
        if part.kind == "image":
            white = self._weight(f"white_{new}", WHITE, "float32")
            new = self._inner(self._node("Mul", [new, white], ""))
        order = [0, 2, 3, 1]
        self._before.append(self._node("Transpose", [new], self._apart(field.name), perm=order))

    def _apart(self, name: str) -> str:
        """Give an input of the policy a name that no port has, and return it."""
        apart = f"{self._prefix}of/{name}"
        for node in self._model.graph.node:
            node.input[:] = [apart if given == name else given for given in node.input]
        return apart

    def _observation(self, *shape: int) -> str:
        """Add the input of the next observation, and return its name."""
        name = f"obs_{self._observations}"
        self._observations += 1
        self._inputs.append(_port(name, *shape))
        return name

    def _inner(self, node: onnx.NodeProto) -> str:
        """Add a node before the policy, and return the name of its output."""
        node.output[0] = f"{self._prefix}inner_{len(self._before)}"
        self._before.append(node)
        return str(node.output[0])

    def keep(self, name: str) -> None:
        """Leave an input as it is."""
        self._inputs.append(self._ports[name])

    def memory(self, states: Mapping[str, int]) -> None:
        """Have all states as [N, 1, width], a sequence of one step. states: widths by name."""
        from onnx import helper

        axes, widths = (
            self._weight(name, values, "int64")
            for name, values in (("axes", [1]), ("widths", list(states.values())))
        )
        every, after = self._prefix + "before", self._prefix + "after"
        self._before.append(self._node("Squeeze", ["recurrent_in", axes], every))
        self._before.append(helper.make_node("Split", [every, widths], list(states), axis=1))
        self._inputs.append(_port("recurrent_in", 1, sum(states.values())))
        self._after.append(self._node("Concat", [_STATES[name] for name in states], after, axis=1))
        self._after.append(self._node("Unsqueeze", [after, axes], "recurrent_out"))
        self._outputs.append(_port("recurrent_out", 1, sum(states.values())))

    def output(self, kind: str, inputs: Sequence[str], name: str, *, width: int) -> None:
        """Add an output of float32, [N, width]."""
        self._after.append(self._node(kind, inputs, name))
        self._outputs.append(_port(name, width))

    def actions(self, continuous: int, branches: Sequence[int]) -> None:
        """Add the actions, with the noise that is given and without any."""
        if continuous:
            self.constant("continuous_action_output_shape", [float(continuous)])
        if branches:
            self.constant("discrete_action_output_shape", [[float(size) for size in branches]])
        self._split(_ACTIONS, "", continuous, len(branches))
        self._split(self._without_noise(), "deterministic_", continuous, len(branches))

    def finished(self) -> bytes:
        """Return the file, checked."""
        import onnx
        from onnx import helper

        old = self._model.graph
        nodes = [*self._before, *old.node, *self._after]
        graph = helper.make_graph(nodes, "policy", self._inputs, self._outputs, old.initializer)
        model = helper.make_model(
            graph,
            opset_imports=self._model.opset_import,
            ir_version=self._model.ir_version,
            producer_name="arkml",
        )
        try:
            onnx.checker.check_model(model)
        except onnx.checker.ValidationError as error:  # names of ours inside of the graph
            raise ModelRejected(f"the model has no form of ML-Agents: {error}"[:300]) from None
        return model.SerializeToString()

    def _split(self, source: str, prefix: str, continuous: int, choices: int) -> None:
        """Add outputs of the columns of actions: float32, and then int64."""
        from onnx import TensorProto, helper

        parts = [source, source]
        if continuous and choices:
            parts = [f"{self._prefix}{prefix}{kind}" for kind in ("continuous", "discrete")]
            sizes = self._weight(f"{prefix}sizes", [continuous, choices], "int64")
            self._after.append(helper.make_node("Split", [source, sizes], parts, axis=1))
        if continuous:
            name = f"{prefix}continuous_actions"
            self.output("Identity", [parts[0]], name, width=continuous)
        if choices:
            name, kind = f"{prefix}discrete_actions", TensorProto.INT64
            self._after.append(helper.make_node("Cast", [parts[1]], [name], to=kind))
            self._outputs.append(_port(name, choices, kind=kind))

    def _without_noise(self) -> str:
        """Add the nodes that follow from the noise once more, with zeros; name the actions."""
        import onnx

        if _NOISE not in self._ports:
            return _ACTIONS
        zero = self._weight("zero", 0.0, "float32")
        twins = {_NOISE: f"{self._prefix}{_NOISE}"}
        self._after.append(self._node("Mul", [_NOISE, zero], twins[_NOISE]))
        for node in self._model.graph.node:
            if twins.keys().isdisjoint(node.input):
                continue
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            twins |= {name: f"{self._prefix}{name}" for name in node.output}
            copy.input[:] = [twins.get(name, name) for name in node.input]
            copy.output[:] = [twins[name] for name in node.output]
            self._after.append(copy)
        return twins.get(_ACTIONS, _ACTIONS)

    def _weight(self, name: str, values: Any, kind: str) -> str:
        import numpy as np
        from onnx import numpy_helper

        weight = numpy_helper.from_array(np.array(values, kind), f"{self._prefix}{name}")
        self._model.graph.initializer.append(weight)
        return weight.name

    @staticmethod
    def _node(kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> onnx.NodeProto:
        from onnx import helper

        return helper.make_node(kind, inputs, [output], **attributes)


def _port(name: str, *sizes: int, kind: int = 1) -> onnx.ValueInfoProto:
    """Return a port of rows: by default float32, which is 1 in ONNX."""
    from onnx import helper

    return helper.make_tensor_value_info(name, kind, ["batch", *sizes])
