"""The parts of an observation, such as images, and the tensors that a learner makes of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from arkml.errors import ProtocolError
from arkml.hive.protocol.wire import WireStruct

Kind = Literal["vector", "entities", "grid", "image"]
Chosen = Literal["cells", "rows", "columns"]

MOST_FEATURES = 1 << 16
"""The most features of a row."""

WHITE = 255.0
"""The largest value of an image."""

_MOST_ENTITIES = 1_024  # attention compares each with all others
_RANKS = {"entities": (2, "[most, features]"), "image": (3, "[height, width, channels]")}
_CELLS = "[height, width]"

_RESERVED = frozenset(
    (
        "action_mask", "action_masks", "actions", "epsilon", "frames_in", "frames_out", "h_in",
        "h_out", "raw_actions", "values",
    )
)  # fmt: skip
# Names that inputs and outputs of a policy have beside its parts, as they are compared: in lower
# case, and without the 0 that exporters append.

PARTS = "parts"
"""The key of the metadata of a policy whose value are its parts as JSON."""

_INNER = "/"  # what the names of other tensors begin with


NO_CHOICES = UNSET
"""For a part without choices: false, and no key of JSON, so that it is as in earlier copies."""


class PlaceChoices(WireStruct, frozen=True, forbid_unknown_fields=True):
    """
    Choices of a branch that are places of a grid, in the order of the row.

    Attributes:
        are: What a choice is: a cell, a row (an index of the first dimension) or a column (one of
            the second).
        branch: The index of the branch.
        first: The choice that is the first place.

    """

    are: Chosen
    branch: Annotated[int, Meta(ge=0, lt=256)] = 0
    first: Annotated[int, Meta(ge=0, lt=MOST_FEATURES)] = 0

    def __str__(self) -> str:
        """Return what follows the name of a part, such as " with cells to choose, from 1 on"."""
        branch = f" in branch {self.branch}" if self.branch else ""
        first = f", from {self.first} on" if self.first else ""
        return f" with {self.are} to choose{branch}{first}"


class Part(WireStruct, frozen=True, forbid_unknown_fields=True):
    """
    Consecutive features of a row that form one part of an observation.

    Attributes:
        name: The name, unique among the parts of a row.
        shape: The shape in C order: [most entities, features of an entity] for entities; [height,
            width, channels] for a grid or an image; [height, width] for a grid of categories.
        kind: "vector" for numbers without further meaning; "entities" for a varying number of
            things of one kind, whose order means nothing; "grid" for cells; "image" for values from
            0 to 255.
        categories: For a grid of categories, each cell is a whole number below this; 0 for other
            parts.
        choices: For a grid, the choices that are its places; NO_CHOICES if none are.

    """

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    shape: Annotated[tuple[Annotated[int, Meta(ge=1, le=MOST_FEATURES)], ...], Meta(min_length=1)]
    kind: Kind = "vector"
    categories: Annotated[int, Meta(ge=0, le=256)] = 0
    choices: PlaceChoices | UnsetType = NO_CHOICES

    def __str__(self) -> str:
        """Return name, kind and shape, such as "tiles entities [20, 6]"."""
        kind = "" if self.kind == "vector" else f"{self.kind} "
        of = f" of {self.categories} categories" if self.categories else ""
        return f"{self.name} {kind}{list(self.shape)}{of}{self.choices or ''}"

    @property
    def size(self) -> int:
        """The product of the shape."""
        return math.prod(self.shape)

    @property
    def width(self) -> int:
        """
        Number of features of a row that the part takes.

        Entities take one more than their values: the first feature is the number of entities.
        """
        return self.size + (self.kind == "entities")

    @property
    def channels(self) -> int:
        """Number of values of each cell of a grid or an image, or of the categories of a cell."""
        return self.categories or self.shape[2]

    @property
    def places(self) -> int:
        """Number of choices that are places of the part."""
        if not isinstance(self.choices, PlaceChoices):
            return 0
        height, width = self.shape[:2]
        return {"cells": height * width, "rows": height, "columns": width}[self.choices.are]

    @property
    def fault(self) -> str:
        """The reason why the shape cannot be used, as a sentence; empty if it can."""
        if self.width > MOST_FEATURES:
            shown = " x ".join(map(str, self.shape))
            return f"it has {shown} values, and a row has {MOST_FEATURES:,} features at most"
        if self.categories and self.kind != "grid":
            return f'categories is {self.categories}: only a part of the kind "grid" has some'
        if self.categories == 1:
            return "categories is 1: it takes 2 or more"
        if isinstance(self.choices, PlaceChoices) and self.kind != "grid":
            return f'its {self.choices.are} are choices: only a part of the kind "grid" has some'
        rank, form = _RANKS.get(self.kind, (len(self.shape), ""))
        if self.kind == "grid":
            rank, form = (2, _CELLS) if self.categories else (3, _RANKS["image"][1])
        if len(self.shape) != rank:
            return f"the kind {self.kind!r} has a shape {form}, not {list(self.shape)}"
        if self.kind == "entities" and self.shape[0] > _MOST_ENTITIES:
            return f"it has {self.shape[0]} entities, and may have {_MOST_ENTITIES}"
        return ""


class RowField(NamedTuple):
    """
    The features of a row that one input of a policy gets.

    Attributes:
        name: The name of the part, with "_count" for the number of its entities.
        shape: The shape of the values of one row.
        start: The index of the first of these features in the row.
        part: The part of the observation.
        is_count: True for the number of entities, which is an input of its own.

    """

    name: str
    shape: tuple[int, ...]
    start: int
    part: Part
    is_count: bool = False

    @property
    def size(self) -> int:
        """The product of the shape."""
        return math.prod(self.shape)

    @property
    def kind(self) -> Kind:
        """The kind of the part; "vector" for the number of entities."""
        return "vector" if self.is_count else self.part.kind

    @property
    def columns(self) -> slice:
        """The indices of these features in a row."""
        return slice(self.start, self.start + self.size)


def fields_of(parts: Iterable[Part]) -> list[RowField]:
    """Return the inputs that policies have for rows with these parts, in the order of the row."""
    fields, start = [], 0
    for part in parts:
        if part.kind == "entities":
            fields.append(RowField(f"{part.name}_count", (1,), start, part, is_count=True))
            start += 1
        fields.append(RowField(part.name, part.shape, start, part))
        start += part.size
    return fields


def parts_as_text(parts: Sequence[Part]) -> str:
    """Return parts as JSON, as ONNX policies store them under the metadata key PARTS."""
    return msgspec.json.encode(tuple(parts)).decode()


def parts_of_text(text: str) -> tuple[Part, ...]:
    """Return the parts in the result of `parts_as_text`. Raises ProtocolError."""
    try:
        parts = msgspec.json.decode(text, type=tuple[Part, ...])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ProtocolError(str(error)) from error
    if fault := parts_fault(parts):
        raise ProtocolError(fault)
    return parts


def bound_of(field: RowField) -> float:
    """
    Return the largest value of a category or a number of entities, the least being 0.

    Returns 0 for features that are neither.
    """
    if field.is_count:
        return float(field.part.shape[0])
    return max(0.0, field.part.categories - 1.0)


def numbers_of(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return the parts that are not images, whose features are float32."""
    return tuple(part for part in parts if part.kind != "image")


def images_of(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return the parts that are images."""
    return tuple(part for part in parts if part.kind == "image")


def learned_parts(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return the parts that a learner needs to know: none if all are vectors."""
    return () if are_flat(parts) else parts


def are_flat(parts: Iterable[Part]) -> bool:
    """Return whether all parts are vectors, so that a learner treats a row as plain numbers."""
    return all(part.kind == "vector" for part in parts)


def in_words(parts: Iterable[Part]) -> str:
    """Return parts with their kinds and shapes, such as "me [4], tiles entities [20, 6]"."""
    return ", ".join(map(str, parts)) or "plain numbers"


def choices_fault(parts: Iterable[Part], branches: Sequence[int]) -> str:
    """
    Return the reason why parts do not fit the numbers of choices of branches; empty if they do.
    """
    for part in parts:
        if not isinstance(part.choices, PlaceChoices):
            continue
        branch, first = part.choices.branch, part.choices.first
        if branch >= len(branches):
            return (
                f"observation {part.name!r}: its {part.choices.are} are choices of branch {branch},"
                f" counted from 0, and the number of branches is {len(branches)}"
            )
        if first + part.places > branches[branch]:
            return (
                f"observation {part.name!r}: its {part.choices.are} are the choices {first} to"
                f" {first + part.places - 1}, and branch {branch} has 0 to {branches[branch] - 1}"
            )
    return ""


def parts_fault(parts: Sequence[Part]) -> str:
    """Return the reason why parts cannot be used, as a sentence; empty if they can."""
    for part in parts:
        if part.fault:
            return f"observation {part.name!r}: {part.fault}"
    names = [field.name for field in fields_of(parts)]
    if len(set(names)) < len(names):
        return "two observations have one name"
    if are_flat(parts):
        return ""
    for name in names:
        if name.lower().removesuffix("_0") in _RESERVED or name.startswith(_INNER):
            return f"observation {name!r} has a name that a policy has for something else"
        _, colon, number = name.rpartition(":")
        if colon and number.isdecimal():
            return f"observation {name!r} ends with a colon and a number, as exporters number names"
    return ""
