"""What a rule sees of one node: its attributes and what is known of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Any

from arkml.errors import ModelRejected

ROWS = 1009
"""
Rows of the batch the rules imagine. It is a prime, so a size that depends on the batch gives
itself away by being a multiple of it.
"""

MAX_RANK = 8
MAX_KNOWN = 64
"""Integers of one tensor whose values are followed; shapes and axes are shorter."""


class ElementType(IntEnum):
    """The element types a policy may use, by their numbers in ONNX."""

    FLOAT = 1
    INT32 = 6
    INT64 = 7
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11

    @property
    def size(self) -> int:
        return _SIZES[self]


_SIZES = {
    ElementType.FLOAT: 4,
    ElementType.INT32: 4,
    ElementType.INT64: 8,
    ElementType.BOOL: 1,
    ElementType.FLOAT16: 2,
    ElementType.DOUBLE: 8,
}

FLOATS = frozenset({ElementType.FLOAT, ElementType.FLOAT16, ElementType.DOUBLE})


def grows(number: int) -> bool:
    """Whether a size or a shape's entry grows with the batch."""
    return number != 0 and number % ROWS == 0


@dataclass(frozen=True, slots=True)
class Tensor:
    """
    What is known of a tensor before a run.

    shape: exact for a batch of ROWS. value: the elements, row-major, of a short integer tensor
    that the input's values cannot change. stored: the elements lie in the file.
    """

    kind: ElementType
    shape: tuple[int, ...]
    value: tuple[int, ...] | None = None
    stored: bool = False

    @property
    def count(self) -> int:
        return prod(self.shape)


class Call:
    """One node. A rule may add to `work`, in multiply-adds, and to `scratch`, in bytes."""

    __slots__ = ("_attributes", "inputs", "op", "outputs", "scratch", "version", "work")

    def __init__(
        self,
        op: str,
        version: int,
        inputs: Sequence[Tensor | None],
        attributes: Mapping[str, Any],
        outputs: int,
    ) -> None:
        self.op = op
        self.version = version
        self.inputs = inputs
        self.outputs = outputs
        self.work = 0
        self.scratch = 0
        self._attributes = attributes

    def input(self, index: int) -> Tensor:
        tensor = self.optional(index)
        if tensor is None:
            raise ModelRejected(f"input {index} is missing")
        return tensor

    def optional(self, index: int) -> Tensor | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def known(self, index: int) -> tuple[int, ...]:
        value = self.input(index).value
        if value is None:
            raise ModelRejected(f"the values of input {index} are known only at run time")
        return value

    def attribute(self, name: str) -> Any:
        """Returns the attribute's value, or None."""
        return self._attributes.get(name)

    def integer(self, name: str, default: int) -> int:
        value = self._attributes.get(name, default)
        if type(value) is not int:
            raise ModelRejected(f"attribute {name} is not an integer")
        return value

    def integers(self, name: str) -> tuple[int, ...] | None:
        value = self._attributes.get(name)
        if value is None:
            return None
        if type(value) is not tuple or not all(type(item) is int for item in value):
            raise ModelRejected(f"attribute {name} is not a list of integers")
        return value

    def axis(self, rank: int, default: int) -> int:
        return checked_axis(self.integer("axis", default), rank)

    def axes(self, rank: int, first_version_with_input: int) -> tuple[int, ...] | None:
        """Returns the axes, an attribute in old versions and input 1 since, or None."""
        if self.version < first_version_with_input:
            given = self.integers("axes")
        else:
            given = None if self.optional(1) is None else self.known(1)
        if given is None:
            return None
        axes = tuple(checked_axis(axis, rank) for axis in given)
        if len(set(axes)) != len(axes):
            raise ModelRejected(f"axes {list(given)} name one axis twice")
        return axes


def checked_axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ModelRejected(f"axis {axis} of a tensor with {rank} dimensions")
    return axis % rank


def checked_type(number: int) -> ElementType:
    try:
        return ElementType(number)
    except ValueError:
        raise ModelRejected(f"element type {number} is not allowed") from None


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape that tensors of these shapes have together."""
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    rank = max(map(len, shapes))
    result = []
    for axis in range(-rank, 0):
        sizes = {shape[axis] for shape in shapes if -axis <= len(shape)} - {1}
        if len(sizes) > 1:
            raise ModelRejected(f"shapes {[list(shape) for shape in shapes]} do not fit")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)
