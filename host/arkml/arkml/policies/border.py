"""
The border of an ONNX graph: inputs and outputs, rewritten to float32 with rows on the first axis.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from arkml.errors import ModelRejected
from arkml.policies.operators.call import ROWS, ElementType, Tensor, grows
from arkml.policies.operators.layers import GATES
from arkml.policies.ports import Port
from arkml.policies.rewriting import replace_items

if TYPE_CHECKING:
    import onnx

    from arkml.policies.vetting import Vetted

_MOST_DOUBTFUL = 3  # shapes whose rows may lie on two axes
_NEW = -1  # the axis of rows that an input has not, and is given


@dataclass(frozen=True, slots=True)
class RowAxes:
    """
    The axis of the batch (the rows) in each of a graph's inputs and outputs.

    block: the fixed number of rows that the graph takes, None for any number. axes: the axis of the
    rows in each port, by name, None for a port without one. Ports that are not named have no rows.
    """

    block: int | None
    axes: Mapping[str, int | None]


def inputs_of(model: onnx.ModelProto) -> list[str]:
    """Return the names of a model's inputs that are not weights."""
    weights = {weight.name for weight in model.graph.initializer}
    return [port.name for port in model.graph.input if port.name not in weights]


def outputs_of(model: onnx.ModelProto) -> list[str]:
    """Return the names of a model's outputs."""
    return [port.name for port in model.graph.output]


def find_rows(vetted: Vetted) -> RowAxes:
    """Return the likeliest axes of the batch in a vetted model. Raises ModelRejected."""
    return possible_rows(vetted)[0]


def possible_rows(vetted: Vetted) -> list[RowAxes]:
    """
    Return the axes that the batch of a vetted model may have, the likeliest first.

    There are several if a fixed number of rows is also a width of layers. Raises ModelRejected.
    """
    inputs, outputs = inputs_of(vetted.model), outputs_of(vetted.model)
    shapes = {name: vetted.tensors[name].shape for name in (*inputs, *outputs)}
    if any(grows(size) for name in inputs for size in shapes[name]):
        return [RowAxes(None, _growing(vetted.tensors, shapes))]
    block = _block(
        [shapes[name] for name in inputs], [shapes[name] for name in outputs], _recurrent(vetted)
    )
    if block is None:
        return [RowAxes(1, dict.fromkeys(shapes))]
    choices = {shape: _axes(shape, block) or (None,) for shape in shapes.values()}
    doubtful = [name for name in shapes if len(choices[shapes[name]]) > 1]
    if len({shapes[name] for name in doubtful}) > _MOST_DOUBTFUL:
        raise doubtful_rows(vetted, doubtful[0])
    ways = []
    for axes in product(*choices.values()):
        by_shape = dict(zip(choices, axes, strict=True))
        found = {name: by_shape[shape] for name, shape in shapes.items()}
        for name in outputs:
            if found[name] is None and block != 1:
                del found[name]
        ways.append(RowAxes(block, found))
    return ways


def doubtful_rows(vetted: Vetted, name: str) -> ModelRejected:
    """Return the error for a model in which two axes of a port may be the batch."""
    return ModelRejected(
        f"the rows of {name[:80]!r}, {list(vetted.tensors[name].shape)}, may lie on its axis 0 or"
        " 1: export the model with its batch open, or for 1 row"
    )


def _block(
    inputs: Collection[tuple[int, ...]],
    outputs: Collection[tuple[int, ...]],
    recurrent: Collection[int],
) -> int | None:
    """
    Return the fixed number of rows of these shapes, None if they have no axis for rows.

    recurrent: the rows of recurrent operators.
    """
    wide = [shape for shape in inputs if len(shape) > 1]
    leading = {shape[0] for shape in wide} | {shape[1] for shape in wide if len(shape) > 2}
    possible = leading & {*recurrent, *(shape[0] for shape in outputs if shape)}
    found = [size for size in possible if all(_axes(shape, size) for shape in inputs)]
    if found:
        return max(
            found,
            key=lambda size: (
                size in recurrent, sum(bool(_axes(shape, size)) for shape in outputs), -size,
            ),
        )  # fmt: skip
    return 1 if 1 in possible else None


def _recurrent(vetted: Vetted) -> set[int]:
    """Return the rows of a model's recurrent operators, which have them behind their steps."""
    nodes = [node for node in vetted.model.graph.node if node.op_type in GATES]
    return {vetted.tensors[node.input[0]].shape[1] for node in nodes}


def _growing(tensors: Mapping[str, Tensor], names: Collection[str]) -> dict[str, int | None]:
    axes: dict[str, int | None] = {}
    for name in names:
        shape = tensors[name].shape
        found = [axis for axis, size in enumerate(shape) if grows(size)]
        if len(found) == 1 and shape[found[0]] == ROWS:
            axes[name] = found[0]
    return axes


def _axes(shape: tuple[int, ...], block: int) -> tuple[int, ...]:
    """Return the axes of a fixed number of rows: the first, or that behind layers or steps."""
    places = shape[:2] if len(shape) > 2 else shape[:1]
    found = tuple(axis for axis, size in enumerate(places) if size == block)
    return found[:1] if block == 1 else found


def ports_of(vetted: Vetted, rows: RowAxes, names: Collection[str]) -> list[Port]:
    """Return the named inputs or outputs that have a batch axis, in their rewritten form."""
    ports = []
    for name in names:
        if name in rows.axes:
            tensor, axis = vetted.tensors[name], rows.axes[name]
            shape = tensor.shape if axis is None else _without(tensor.shape, axis)
            ports.append(Port(name, shape, tensor.kind.text))
    return ports


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def prune(model: onnx.ModelProto, outputs: Collection[str]) -> bool:
    """
    Remove all nodes that `outputs` do not need, and return True if there were any.

    Inputs stay, even if no node reads them any more.
    """
    graph = model.graph
    dropped = [port for port in graph.output if port.name not in outputs]
    needed = {port.name for port in graph.output if port.name in outputs}
    keep = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            keep.append(node)
            needed.update(node.input)
    if not keep or (not dropped and len(keep) == len(graph.node)):
        return False
    for port in dropped:
        graph.output.remove(port)
    replace_items(graph.node, keep[::-1])
    inputs = {port.name for port in graph.input}
    kept = [weight for weight in graph.initializer if weight.name in needed | inputs]
    if len(kept) < len(graph.initializer):
        replace_items(graph.initializer, kept)
    return True


def conform(model: onnx.ModelProto, rows: RowAxes, tensors: Mapping[str, Tensor]) -> bool:
    """
    Cast inputs and outputs from and to float32, and move their rows to the first axis.

    Returns True if anything was changed. Raises ModelRejected for an input that is an output, too.
    """
    names = _Names(model)
    before: list[onnx.NodeProto] = []
    after: list[onnx.NodeProto] = []
    outputs = set(outputs_of(model))
    for port in model.graph.input:
        if port.name in rows.axes and _differs(tensors[port.name], rows.axes[port.name]):
            if port.name in outputs:
                raise ModelRejected(f"{port.name[:80]!r} is an input and an output")
            before += _entering(model, port, rows, tensors[port.name], names)
    for port in model.graph.output:
        if port.name in rows.axes and _differs(tensors[port.name], rows.axes[port.name]):
            after += _leaving(model, port, rows, tensors[port.name], names)
    if not (before or after):
        return False
    nodes = [*before, *model.graph.node, *after]
    replace_items(model.graph.node, nodes)
    return True


def _differs(tensor: Tensor, axis: int | None) -> bool:
    return tensor.kind is not ElementType.FLOAT or axis != 0


def _entering(
    model: onnx.ModelProto, port: onnx.ValueInfoProto, rows: RowAxes, tensor: Tensor, names: _Names
) -> list[onnx.NodeProto]:
    """Return the nodes that make an input's old form of its new one."""
    axis, inside = rows.axes[port.name], names.new(port.name)
    _rename(model, port.name, inside, of_outputs=False)
    steps: list[tuple[str, dict[str, Any]]] = []
    if tensor.kind is not ElementType.FLOAT:
        steps.append(("Cast", {"to": int(tensor.kind)}))
    if axis is None:
        steps.append(("Reshape", {"shape": tensor.shape}))
    elif axis:
        rank = len(tensor.shape)
        order = [*range(1, axis + 1), 0, *range(axis + 1, rank)]
        steps.append(("Transpose", {"perm": order}))
    shape = tensor.shape if axis is None else _without(tensor.shape, axis)
    _declare(port, rows.block, shape)
    return _chain(model, names, port.name, inside, steps)


def _leaving(
    model: onnx.ModelProto, port: onnx.ValueInfoProto, rows: RowAxes, tensor: Tensor, names: _Names
) -> list[onnx.NodeProto]:
    """Return the nodes that make an output's new form of its old one."""
    axis, inside = rows.axes[port.name], names.new(port.name)
    _rename(model, port.name, inside, of_outputs=True)
    steps: list[tuple[str, dict[str, Any]]] = []
    if axis is None:
        steps.append(("Reshape", {"shape": (1, *tensor.shape)}))
    elif axis:
        order = [axis, *(other for other in range(len(tensor.shape)) if other != axis)]
        steps.append(("Transpose", {"perm": order}))
    if tensor.kind is not ElementType.FLOAT:
        steps.append(("Cast", {"to": int(ElementType.FLOAT)}))
    shape = tensor.shape if axis is None else _without(tensor.shape, axis)
    _declare(port, rows.block, shape)
    return _chain(model, names, inside, port.name, steps)


def _declare(port: onnx.ValueInfoProto, block: int | None, shape: tuple[int, ...]) -> None:
    """Give a port its new type."""
    kind = port.type.tensor_type
    kind.elem_type = int(ElementType.FLOAT)
    del kind.shape.dim[:]
    first = kind.shape.dim.add()
    if block is None:
        first.dim_param = "N"
    else:
        first.dim_value = block
    for size in shape:
        kind.shape.dim.add().dim_value = size


def _chain(
    model: onnx.ModelProto,
    names: _Names,
    source: str,
    target: str,
    steps: list[tuple[str, dict[str, Any]]],
) -> list[onnx.NodeProto]:
    import numpy as np
    from onnx import helper, numpy_helper

    nodes = []
    for number, (op, given) in enumerate(steps):
        result = target if number == len(steps) - 1 else names.new(target)
        inputs = [source]
        if op == "Reshape":
            inputs.append(names.new(f"{target}_shape"))
            shape = np.array(given.pop("shape"), np.int64)
            model.graph.initializer.append(numpy_helper.from_array(shape, inputs[1]))
        nodes.append(helper.make_node(op, inputs, [result], **given))
        source = result
    return nodes


def _rename(model: onnx.ModelProto, name: str, new: str, *, of_outputs: bool) -> None:
    for node in model.graph.node:
        for place, each in enumerate(node.input):
            if each == name:
                node.input[place] = new
        if of_outputs:
            for place, each in enumerate(node.output):
                if each == name:
                    node.output[place] = new
    if of_outputs:
        for weight in model.graph.initializer:  # which an output may be, without a node
            if weight.name == name:
                weight.name = new


class _Names:
    """Makes names that no tensor of a model has."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self._taken = {port.name for port in (*graph.input, *graph.output)}
        self._taken.update(weight.name for weight in graph.initializer)
        for node in graph.node:
            self._taken.update(node.input, node.output)

    def new(self, name: str) -> str:
        number = 0
        while (found := f"{name[:200]}/border{number}") in self._taken:
            number += 1
        self._taken.add(found)
        return found


def with_actions(data: bytes, name: str) -> bytes:
    """Return a vetted ONNX file, with its output `name` renamed to `actions`."""
    import onnx

    model = onnx.ModelProto.FromString(data)
    names = _Names(model)
    for old, new in (("actions", names.new("actions")), (name, "actions")):
        if old != name or name != "actions":
            _rename(model, old, new, of_outputs=True)
            for port in (*model.graph.input, *model.graph.output, *model.graph.value_info):
                if port.name == old:
                    port.name = new
    return model.SerializeToString()


def opened(
    model: onnx.ModelProto, rows: RowAxes, tensors: Mapping[str, Tensor]
) -> Iterator[Mapping[str, int | None]]:
    """
    Replace the fixed batch size of a model by a free one, in each way that it may be meant.

    Yields the axes of the inputs that were made free. Each iteration changes `model` anew; the
    caller vets it before using it.
    """
    shapes = {name: tensors[name].shape for name in inputs_of(model)}
    block = rows.block or 1
    plain = {name: _NEW if rows.axes[name] is None else rows.axes[name] for name in shapes}
    ways = [plain]
    if block == 1:  # of layers and a row, both 1, the layers are first
        behind = {name: 1 if len(shape) > 2 and shape[1] == 1 else plain[name]
                  for name, shape in shapes.items()}  # fmt: skip
        ways.insert(0, behind)
    if _NEW in plain.values():
        ways.append(dict.fromkeys(shapes, _NEW))
    ways = [way for place, way in enumerate(ways) if way not in ways[:place]]
    _open_reshapes(model, block, tensors)
    for port in model.graph.output:
        port.type.tensor_type.ClearField("shape")
    for way in ways:
        for port in model.graph.input:
            if port.name in way:
                _open(port, shapes[port.name], way[port.name])
        yield way


def _open(port: onnx.ValueInfoProto, shape: tuple[int, ...], axis: int | None) -> None:
    """Open one dimension of an input, or give it one."""
    sizes: list[int | None] = [*shape]
    if axis == _NEW:
        sizes.insert(0, None)
    elif axis is not None:
        sizes[axis] = None
    field = port.type.tensor_type.shape.dim
    del field[:]
    for size in sizes:
        dimension = field.add()
        if size is None:
            dimension.dim_param = "N"
        else:
            dimension.dim_value = size


def _open_reshapes(model: onnx.ModelProto, block: int, tensors: Mapping[str, Tensor]) -> None:
    """Have constant shapes of Reshape that hold the fixed batch follow the size of their input."""
    import numpy as np
    from onnx import numpy_helper

    constants: dict[str, onnx.TensorProto] = {w.name: w for w in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = node.attribute[0].t
    names = _Names(model)
    for node in model.graph.node:
        if node.op_type != "Reshape" or node.input[1] not in constants:
            continue
        values = numpy_helper.to_array(constants[node.input[1]])
        keeps_zeros = any(each.name == "allowzero" and each.i for each in node.attribute)
        wanted = _following(values.tolist(), tensors[node.input[0]].shape, block)
        if wanted == values.tolist() or (keeps_zeros and 0 in wanted):
            continue
        node.input[1] = names.new(node.input[1])
        replaced = numpy_helper.from_array(np.array(wanted, np.int64), node.input[1])
        model.graph.initializer.append(replaced)


def _following(values: Sequence[int], shape: tuple[int, ...], block: int) -> list[int]:
    """
    Return a shape of a Reshape with its batch open, which is `values` for a batch of `block`.

    `shape` is that of its input. One size that may be the batch follows from the others; several,
    of which some are layers or steps, are copied if the input has them at the same place.
    """
    wanted = list(values)
    places = [axis for axis, size in enumerate(wanted) if size == block]
    copied = [axis for axis in places if shape[axis : axis + 1] == (block,)]
    likely = copied if len(copied) == 1 else places
    if len(wanted) > 1 and len(likely) == 1 and -1 not in wanted:
        wanted[likely[0]] = -1
    elif len(wanted) > 1:
        for axis in copied:
            wanted[axis] = 0
    return wanted
