"""Searches of ONNX graphs for pairs of an input and an output that carry a recurrent state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arkml.policies.border import inputs_of, outputs_of

if TYPE_CHECKING:
    import onnx

_RECURRENT = {"LSTM": ((5, 1), (6, 2)), "GRU": ((5, 1),), "RNN": ((5, 1),)}
"""The inputs of operators that are states, each with the output that is the next one."""

_PASSING = frozenset(
    [
        "Identity",
        "Transpose",
        "Reshape",
        "Squeeze",
        "Unsqueeze",
        "Cast",
        "Slice",
        "Split",
        "Concat",
        "Gather",
    ]
)
"""Operators behind which a state is the same state."""

_MOST_RECURRENT = 64  # operators whose states are searched for


def twins_of(model: onnx.ModelProto) -> tuple[tuple[str, str], ...]:
    """
    Return pairs of an input and an output that carry one recurrent state, as the graph shows.

    These are the states of recurrent operators, and each input that reaches only one output, if no
    other input reaches that output.
    """
    search = _Search(model)
    pairs = {**search.alone(), **search.recurrent()}
    return tuple(pairs.items())


class _Search:
    """Searches a vetted graph from tensor to tensor."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._nodes = model.graph.node
        self._inputs = inputs_of(model)
        self._outputs = outputs_of(model)
        self._readers: dict[str, list[int]] = {}
        self._makers: dict[str, int] = {}
        for place, node in enumerate(self._nodes):
            for name in node.input:
                self._readers.setdefault(name, []).append(place)
            for name in node.output:
                self._makers[name] = place

    def alone(self) -> dict[str, str]:
        """Return inputs that reach one output which no other input reaches."""
        if len(self._inputs) < 2:
            return {}
        reached = self._reached()
        found = {}
        for name, outputs in reached.items():
            others: set[str] = set().union(*(o for n, o in reached.items() if n != name))
            if len(outputs) == 1 and not outputs & others:
                found[name] = next(iter(outputs))
        return found if len(found) < len(self._inputs) else {}

    def recurrent(self) -> dict[str, str]:
        """Return the inputs and outputs that are states of recurrent operators."""
        found: dict[str, str] = {}
        nodes = [node for node in self._nodes if node.op_type in _RECURRENT]
        for node in nodes[:_MOST_RECURRENT]:
            for source, target in _RECURRENT[node.op_type]:
                if source < len(node.input) and target < len(node.output):
                    start = self._source(node.input[source])
                    ends = self._targets(node.output[target])
                    if start is not None and len(ends) == 1:
                        found[start] = ends.pop()
        return found

    def _reached(self) -> dict[str, set[str]]:
        """Return the outputs that depend on each input."""
        marks = {name: 1 << place for place, name in enumerate(self._inputs)}
        for node in self._nodes:
            mark = 0
            for name in node.input:
                mark |= marks.get(name, 0)
            for name in node.output:
                marks[name] = mark
        return {
            name: {output for output in self._outputs if marks.get(output, 0) >> place & 1}
            for place, name in enumerate(self._inputs)
        }

    def _source(self, name: str) -> str | None:
        """Return the input from which a tensor comes by moving elements only."""
        while name not in self._inputs:
            place = self._makers.get(name)
            if place is None or self._nodes[place].op_type not in _PASSING:
                return None
            name = self._nodes[place].input[0]
        return name

    def _targets(self, name: str) -> set[str]:
        """Return the outputs that have a tensor, by moving elements only."""
        seen, todo = {name}, [name]
        while todo:
            for place in self._readers.get(todo.pop(), ()):
                if self._nodes[place].op_type in _PASSING:
                    for output in self._nodes[place].output:
                        if output and output not in seen:
                            seen.add(output)
                            todo.append(output)
        return seen.intersection(self._outputs)
