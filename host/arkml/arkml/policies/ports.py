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

    `type` is the name of its element type in the file, as numpy has it.
    """

    name: str
    shape: tuple[int, ...]
    type: str = "float32"

    @property
    def width(self) -> int:
        """Numbers in one row."""
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
        """True if it has whole numbers in the file."""
        return self.type.startswith("int")

    @property
    def meaning(self) -> Meaning:
        """Its meaning as an output, by its name: one score rates the action, as a critic does."""
        found = meaning(self.name)
        is_one_score = found is Meaning.SCORES and self.width == 1 and not self.is_whole
        return Meaning.VALUE if is_one_score else found


Parts = tuple[RowField, ...]
"""The parts of an observation that a guest declares, in the order of its row."""


@dataclass(frozen=True, slots=True)
class Layout:
    """
    The ports of a model.

    twins: names of inputs and outputs that the graph shows to be one state: the state of a
    recurrent operator, or an input that reaches this output alone. constants: names of outputs that
    have no rows, by which some trainers describe a model.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    twins: tuple[tuple[str, str], ...] = ()
    constants: tuple[str, ...] = ()


def by_stem(ports: Sequence[Port]) -> dict[str, Port]:
    """
    Return ports by their stems, except for ports that differ from another one in numbers alone.
    """
    counts = Counter(unnumbered(port.name) for port in ports)
    return {port.stem: port for port in ports if counts[unnumbered(port.name)] == 1}


def told_apart(ports: Sequence[Port]) -> list[str]:
    """Return the labels of ports, or their names if labels are alike."""
    labels = [port.label for port in ports]
    return labels if len(set(labels)) == len(labels) else [port.name for port in ports]


def listed(ports: Iterable[Port]) -> str:
    """Return the ports with their widths and types, for a sentence."""
    every = tuple(ports)
    return (
        ", ".join(
            f"{name}: {port.width}" + ("" if port.type == "float32" else f" {port.type}")
            for name, port in zip(told_apart(every), every, strict=True)
        )
        or "none"
    )
