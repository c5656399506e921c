"""Nodes of an ONNX graph that are replaced by others before onnxruntime sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from arkml.errors import ModelRejected
from arkml.policies.operators.call import ElementType, Tensor

if TYPE_CHECKING:
    import onnx

_MOST_NODES = 64
"""Nodes of a branch."""

_SMALL_INTEGERS = frozenset({2, 3, 4, 5})  # uint8, int8, uint16, int16, by their numbers in ONNX
_CASTING = frozenset({"Cast", "Shape"})
_MOVING = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})

_LOWEST = {ElementType.FLOAT: -3.4e38, ElementType.DOUBLE: -1.7e308}


class Rewriting:
    """
    Replaces nodes of one model by nodes that behave well, for example on NaN.

    tensors: the known facts of the tensors before a node.
    """

    def __init__(self, model: onnx.ModelProto, tensors: Mapping[str, Tensor]) -> None:
        self.has_changed = False
        self._tensors = tensors
        self._model = model
        self._taken: set[str] = set()
        self._numbers = count()

    def nodes(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """
        Yield the nodes that replace a node, mostly only the node itself.

        The caller vets each before it asks for the next one. Raises ModelRejected.
        """
        if node.op_type == "If":
            self.has_changed = True
            for each in _inlined(_branch_taken(node, self._tensors), node, self._name):
                yield from self.nodes(each)
        elif node.op_type == "TopK" and node.input:
            self.has_changed = True
            yield from _without_nan(node, self._tensors, self._name)
        else:
            yield node

    def _name(self) -> str:
        """Return a name that no tensor of the model has."""
        if not self._taken:
            graph = self._model.graph
            self._taken.update(each.name for each in graph.initializer)
            self._taken.update(each.name for each in (*graph.input, *graph.output))
            for node in graph.node:
                self._taken.update(node.input, node.output)
        name = next(name for name in (f"rewritten{n}" for n in self._numbers)
                    if name not in self._taken)  # fmt: skip
        self._taken.add(name)
        return name


def widen_small_integers(model: onnx.ModelProto) -> None:
    """
    Make inputs of small integers, such as pixels, int32 if the graph only moves and casts them.

    Inputs that the graph computes with stay, because small integers wrap around.
    """
    for port in model.graph.input:
        kind = port.type.tensor_type
        if kind.elem_type in _SMALL_INTEGERS and _is_cast_first(model, port.name):
            kind.elem_type = int(ElementType.INT32)


def _is_cast_first(model: onnx.ModelProto, name: str) -> bool:
    """Return True if every node that reads a tensor casts it, or moves it to one that does."""
    moved, outputs = {name}, {port.name for port in model.graph.output}
    for node in model.graph.node:
        if node.op_type in _CASTING or moved.isdisjoint(node.input):
            continue
        if node.op_type not in _MOVING or not moved.issuperset(node.input[:1]):
            return False
        moved.update(node.output)
    return moved.isdisjoint(outputs)


def _branch_taken(node: onnx.NodeProto, tensors: Mapping[str, Tensor]) -> onnx.GraphProto:
    """
    Return the branch that an If takes, where the shapes tell which. Raises ModelRejected.

    Exporters write one for a squeeze of an axis whose size they do not know.
    """
    condition = tensors.get(node.input[0]) if len(node.input) == 1 else None
    if condition is None or condition.value is None or len(condition.value) != 1:
        raise ModelRejected("only a run can tell which of its branches is taken")
    name = "then_branch" if condition.value[0] else "else_branch"
    graphs = [item.g for item in node.attribute if item.name == name]
    if len(graphs) != 1:
        raise ModelRejected(f"it has {len(graphs)} attributes {name}")
    (graph,) = graphs
    if graph.input or graph.initializer or not 0 < len(graph.node) <= _MOST_NODES:
        raise ModelRejected(f"its {name} is not {_MOST_NODES} nodes at most, without weights")
    if len(graph.output) != len(node.output):
        raise ModelRejected(f"its {name} has {len(graph.output)} outputs")
    return graph


def _inlined(
    graph: onnx.GraphProto, node: onnx.NodeProto, new: Callable[[], str]
) -> list[onnx.NodeProto]:
    """Return copies of the nodes of a branch, whose outputs get the names of its node's outputs."""
    import onnx
    from onnx import helper

    names = {name: new() for each in graph.node for name in each.output if name}
    nodes = []
    for each in graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(each)
        copy.input[:] = [names.get(name, name) for name in each.input]
        copy.output[:] = [names.get(name, name) for name in each.output]
        nodes.append(copy)
    for inner, outer in zip(graph.output, node.output, strict=True):
        source = names.get(inner.name, inner.name)
        nodes.append(helper.make_node("Identity", [source], [outer]))
    return nodes


def _without_nan(
    node: onnx.NodeProto, tensors: Mapping[str, Tensor], new: Callable[[], str]
) -> list[onnx.NodeProto]:
    """
    Return the nodes by which the input of a TopK has no NaN, and the TopK.

    onnxruntime sorts by comparisons, and a sort that meets NaN may leave its array.
    """
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    source = node.input[0]
    tensor = tensors.get(source)
    if tensor is None or tensor.kind not in _LOWEST:
        return [node]
    is_number, constant, number = new(), new(), new()
    lowest = np.array(_LOWEST[tensor.kind], tensor.kind.text)
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[0] = number
    return [
        helper.make_node("Equal", [source, source], [is_number]),
        helper.make_node("Constant", [], [constant], value=numpy_helper.from_array(lowest)),
        helper.make_node("Where", [is_number, source, constant], [number]),
        copy,
    ]


def replace_items(field: Any, items: Sequence[Any]) -> None:
    """
    Replace the messages in a repeated protobuf field; `items` may contain some of the old ones.
    """
    copies = [type(item)() for item in items]
    for copy, item in zip(copies, items, strict=True):
        copy.CopyFrom(item)
    del field[:]
    field.extend(copies)
