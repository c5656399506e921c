"""The inputs and outputs of a model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from arkml.hive.protocol.parts import RowField
from arkml.policies.port_names import Meaning, meaning, unnumbered, without_output_number


@dataclass(frozen=True, slots=True)
class Port:
    """
    An input or output of a model, used as float32. `shape` is without the batch dimension.

    `type` is the numpy name of its element type in the file.
    """

    name: str
    shape: tuple[int, ...]
    type: str = "float32"

    @property
    def width(self) -> int:
        """The number of values in one row."""
        return math.prod(self.shape)

    @property
    def label(self) -> str:
        """The name without the colon and output number that TensorFlow appends."""
        return without_output_number(self.name)

    @property
    def stem(self) -> str:
        """The label in lower case without the `_0` that NNEF appends, for comparisons."""
        return self.label.lower().removesuffix("_0")

    @property
    def is_whole(self) -> bool:
        """True if the elements are integers in the file."""
        return self.type.startswith("int")

    @property
    def meaning(self) -> Meaning:
        """
        The meaning of the port as an output, guessed from its name; a single score is a value.
        """
        found = meaning(self.name)
        is_one_score = found is Meaning.SCORES and self.width == 1 and not self.is_whole
        return Meaning.VALUE if is_one_score else found


Parts = tuple[RowField, ...]
"""The parts of an observation that a guest declares, in the order of its row."""


@dataclass(frozen=True, slots=True)
class Layout:
    """
    The ports of a model.

    twins: pairs of an input and an output that, by the graph, carry one recurrent state: the state
    of a recurrent operator, or an input that reaches this output alone. constants: names of outputs
    without rows, by which some trainers describe a model.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    twins: tuple[tuple[str, str], ...] = ()
    constants: tuple[str, ...] = ()


def by_stem(ports: Sequence[Port]) -> dict[str, Port]:
    """
    Return ports by their stems, except ports whose names differ from another's only in numbers.
    """
    counts = Counter(unnumbered(port.name) for port in ports)
    return {port.stem: port for port in ports if counts[unnumbered(port.name)] == 1}


def told_apart(ports: Sequence[Port]) -> list[str]:
    """Return the labels of ports, or their full names if labels are equal."""
    labels = [port.label for port in ports]
    return labels if len(set(labels)) == len(labels) else [port.name for port in ports]


def listed(ports: Iterable[Port]) -> str:
    """Return a text that lists ports with their widths and types."""
    every = tuple(ports)
    return (
        ", ".join(
            f"{name}: {port.width}" + ("" if port.type == "float32" else f" {port.type}")
            for name, port in zip(told_apart(every), every, strict=True)
        )
        or "none"
    )
