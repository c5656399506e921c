"""One ONNX node as a size rule sees it: its attributes, and the known facts of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Any

from arkml.errors import ModelRejected

ROWS = 1031
"""
Rows of the batch that rules size tensors for. A prime: a size that is a multiple of it grows with
the batch. No run has more rows (`policies.model.ALIKE`), so that no tensor is larger than sized.
"""

MAX_RANK = 8
MAX_KNOWN = 64
"""Most integers of one tensor whose values are tracked; shapes and axes are shorter."""


class ElementType(IntEnum):
    """The element types that a policy may use, by their numbers in ONNX."""

    FLOAT = 1
    INT32 = 6
    INT64 = 7
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return _SIZES[self]

    @property
    def text(self) -> str:
        """The numpy name of the type."""
        return _TEXTS[self]


_SIZES = {
    ElementType.FLOAT: 4,
    ElementType.INT32: 4,
    ElementType.INT64: 8,
    ElementType.BOOL: 1,
    ElementType.FLOAT16: 2,
    ElementType.DOUBLE: 8,
}

_TEXTS = {
    ElementType.FLOAT: "float32",
    ElementType.INT32: "int32",
    ElementType.INT64: "int64",
    ElementType.BOOL: "bool",
    ElementType.FLOAT16: "float16",
    ElementType.DOUBLE: "float64",
}

_OTHERS = {
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    8: "string",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8",
    21: "uint4",
    22: "int4",
}
"""Element types of ONNX that a policy may not use."""

_QUANTIZED = frozenset({2, 3, 4, 5, 17, 21, 22})

FLOATS = frozenset({ElementType.FLOAT, ElementType.FLOAT16, ElementType.DOUBLE})


def grows(number: int) -> bool:
    """Return whether a size, or an entry of a shape, depends on the batch size."""
    return number != 0 and number % ROWS == 0


@dataclass(frozen=True, slots=True)
class Tensor:
    """
    The facts about a tensor that are known before a run.

    shape: exact for a batch of ROWS. value: the elements, row-major, of a short integer tensor that
    does not depend on the values of inputs, else None. stored: True if the elements are stored in
    the file.
    """

    kind: ElementType
    shape: tuple[int, ...]
    value: tuple[int, ...] | None = None
    stored: bool = False

    @property
    def count(self) -> int:
        """Number of elements."""
        return prod(self.shape)


class Call:
    """
    One ONNX node: operator, opset version, inputs, attributes, and number of outputs.

    A size rule may add costs for a batch of ROWS: to `work`, in multiply-adds, to `steps`, the
    number of sequential pieces, and to `scratch`, in bytes.
    """

    __slots__ = ("_attributes", "inputs", "op", "outputs", "scratch", "steps", "version", "work")

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
        self.steps = 0
        self.scratch = 0
        self._attributes = attributes

    def input(self, index: int) -> Tensor:
        """Return input `index`. Raises ModelRejected if it is missing."""
        tensor = self.optional(index)
        if tensor is None:
            raise ModelRejected(f"input {index} is missing")
        return tensor

    def optional(self, index: int) -> Tensor | None:
        """Return input `index`, or None if it is missing."""
        return self.inputs[index] if index < len(self.inputs) else None

    def known(self, index: int) -> tuple[int, ...]:
        """Return the values of input `index`. Raises ModelRejected if only a run can tell them."""
        value = self.input(index).value
        if value is None:
            raise ModelRejected(f"the values of input {index} are known only at run time")
        return value

    def attribute(self, name: str) -> Any:
        """Return the value of an attribute, or None."""
        return self._attributes.get(name)

    def integer(self, name: str, default: int) -> int:
        """Return an integer attribute. Raises ModelRejected if it has another type."""
        value = self._attributes.get(name, default)
        if type(value) is not int:
            raise ModelRejected(f"attribute {name} is not an integer")
        return value

    def integers(self, name: str) -> tuple[int, ...] | None:
        """
        Return an attribute that is a list of integers, or None. Raises ModelRejected for others.
        """
        value = self._attributes.get(name)
        if value is None:
            return None
        if type(value) is not tuple or not all(type(item) is int for item in value):
            raise ModelRejected(f"attribute {name} is not a list of integers")
        return value

    def axis(self, rank: int, default: int) -> int:
        """Return the attribute `axis`, counted from the front. Raises ModelRejected."""
        return checked_axis(self.integer("axis", default), rank)

    def axes(self, rank: int, first_version_with_input: int) -> tuple[int, ...] | None:
        """Return the axes, or None: an attribute in old opset versions, input 1 in later ones."""
        if self.version < first_version_with_input:
            declared = self.integers("axes")
        else:
            declared = None if self.optional(1) is None else self.known(1)
        if declared is None:
            return None
        axes = tuple(checked_axis(axis, rank) for axis in declared)
        if len(set(axes)) != len(axes):
            raise ModelRejected(f"axes {list(declared)} name one axis twice")
        return axes


def checked_axis(axis: int, rank: int) -> int:
    """Return an axis counted from the front. Raises ModelRejected if the rank has no such axis."""
    if not -rank <= axis < rank:
        raise ModelRejected(f"axis {axis} of a tensor with {rank} dimensions")
    return axis % rank


def checked_type(number: int) -> ElementType:
    """Return an element type by its number in ONNX. Raises ModelRejected for any other."""
    try:
        return ElementType(number)
    except ValueError:
        text = f"element type {number} is not allowed"
        if name := _OTHERS.get(number):
            text += f": it is {name}"
        if number in _QUANTIZED:
            text += ", and quantized models are not supported"
        raise ModelRejected(text) from None


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape to which tensors of these shapes broadcast. Raises ModelRejected."""
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
