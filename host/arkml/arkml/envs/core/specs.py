"""The meaning of a behavior's rows: parts of an observation, and kinds of actions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.arrays import every, rounded_bytes
from arkml.base.short_reprs import short_repr
from arkml.batches import Floats
from arkml.errors import InvalidActions
from arkml.hive.protocol.parts import NO_CHOICES, Kind, Part, PlaceChoices
from arkml.hive.protocol.shown_games import ShownGame

Bounds = tuple[float, ...]
"""Bounds, one for each value."""

Values = npt.NDArray[Any]
"""Values of a part of an observation: float32, or uint8 of an image."""

_WHOLE = "obs_0"
_FLOAT, _BYTE = np.dtype(np.float32), np.dtype(np.uint8)


@dataclass(frozen=True, slots=True)
class ObservationPart:
    """
    Consecutive features that form one observation.

    Attributes:
        name: Name of the part.
        shape: Shape of the observation, in C order.
        low: Lower bound of each value.
        high: Upper bound of each value.
        is_goal: True for an observation of the type "goal".
        kind: "vector", "entities", "grid" or "image". Entities are preceded by a part of their own:
            the number of entities that exist.
        categories: For a grid of whole numbers, the number that all are below; else 0.
        choices: For a grid, the choices that are its places, or None.

    """

    __repr__ = short_repr

    name: str
    shape: tuple[int, ...]
    low: Bounds
    high: Bounds
    is_goal: bool = False
    kind: Kind = "vector"
    categories: int = 0
    choices: PlaceChoices | None = None

    @property
    def size(self) -> int:
        """The number of features in the part."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values: uint8 for an image, else float32."""
        return _BYTE if self.kind == "image" else _FLOAT

    def reshape(self, observations: Floats) -> Values:
        """
        Return features, float32, [n, size], in shape and type of this part: [n, *shape].

        Values of an image are rounded, and clipped to the range 0 to 255.
        """
        if len(self.shape) == 1:  # it is as it should be
            return observations
        values = observations.reshape(len(observations), *self.shape)
        return rounded_bytes(values) if self.kind == "image" else values


@dataclass(frozen=True, slots=True)
class Actions:
    """
    The columns of an action: `continuous` floats, then one whole number from 0 for each branch.

    Attributes:
        continuous: Number of continuous actions.
        low: Lower bound of each continuous action.
        high: Upper bound of each continuous action.
        branches: Number of choices of each branch.
        names: The name of each column for people; empty if not declared.
        choices: The name of each choice for people, branch after branch, in the order of masks;
            empty if not declared.

    """

    __repr__ = short_repr

    continuous: int
    low: Bounds
    high: Bounds
    branches: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    _floors: Floats = field(init=False, repr=False, compare=False)
    _ceilings: Floats = field(init=False, repr=False, compare=False)
    _counts: Floats = field(init=False, repr=False, compare=False)
    _bounds: tuple[float, float] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        largest = np.finfo(np.float32).max  # infinite values are outside of all bounds
        for name, bounds in (("_floors", self.low), ("_ceilings", self.high)):
            clipped = np.clip(np.array(bounds, np.float64), -largest, largest)
            object.__setattr__(self, name, clipped.astype(np.float32))
        object.__setattr__(self, "_counts", np.array(self.branches, np.float32))
        distinct = {*zip(self._floors.tolist(), self._ceilings.tolist(), strict=True)}
        object.__setattr__(self, "_bounds", distinct.pop() if len(distinct) == 1 else None)

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.continuous + len(self.branches)

    def check(self, values: Floats, who: str) -> None:
        """
        Raise InvalidActions, which names `who`, if values, [..., width], are not valid actions.

        Masks are not checked: a masked choice is for the guest to handle.
        """
        if self.continuous:
            self._check_floats(values[..., : self.continuous] if self.branches else values, who)
        self.check_choices(values, who)

    def _check_floats(self, floats: Floats, who: str) -> None:
        fits = (floats >= self._floors) & (floats <= self._ceilings)
        if not every(fits):
            position = tuple(np.argwhere(~fits)[0])
            low, high = self._floors[position[-1]], self._ceilings[position[-1]]
            wrong = f"{floats[position]:g}"
            if wrong in (f"{low:g}", f"{high:g}"):  # it differs in a later digit
                wrong = str(floats[position])
            raise InvalidActions(f"{who} takes actions from {low:g} to {high:g}, not {wrong}")

    def are_valid(self, values: Floats) -> bool:
        """
        Return whether continuous actions, [..., width], pass `check`; False if there are branches.
        """
        if self.branches:
            return False
        if self._bounds is not None and values.size:  # positions cost less than extremes, and that
            low, high = self._bounds  # of a NaN comes first, which is within no bounds
            return bool(
                values.item(values.argmin()) >= low and values.item(values.argmax()) <= high
            )
        return every((values >= self._floors) & (values <= self._ceilings))

    def check_choices(self, values: Floats, who: str) -> None:
        """Raise InvalidActions if a choice in `values`, [..., width], does not exist."""
        if not self.branches:
            return
        chosen = values[..., self.continuous :]
        fits = (chosen >= 0) & (chosen < self._counts) & (np.floor(chosen) == chosen)
        if not every(fits):
            wrong = ~fits
            branch = int(np.argwhere(wrong)[0][-1])
            raise InvalidActions(
                f"branch {branch} of {who} takes whole numbers from 0 to"
                f" {self.branches[branch] - 1}, not {chosen[wrong].flat[0]:g}"
            )


@dataclass(frozen=True, slots=True)
class Spec:
    """
    The meaning of the features and actions of a behavior.

    Attributes:
        observations: The parts of an observation, which cover all features in order.
        actions: The columns of an action.
        decision_period: Number of submits from one decision of an agent to its next.
        slots: The largest number of agents at once, or None.
        positions: Indices of two features that are coordinates in a plane, or None.
        game: Texts and pictures by which web pages show the agents' game, or None.

    """

    __repr__ = short_repr

    observations: tuple[ObservationPart, ...]
    actions: Actions
    decision_period: int = 1
    slots: int | None = None
    positions: tuple[int, int] | None = None
    game: ShownGame | None = None

    @staticmethod
    def flat(num_features: int, num_actions: int) -> Spec:
        """
        Return a spec with one observation of all features, and continuous actions from -1 to 1.
        """
        without = (-math.inf,) * num_features, (math.inf,) * num_features
        ones = (-1.0,) * num_actions, (1.0,) * num_actions
        whole = ObservationPart(_WHOLE, (num_features,), *without)
        return Spec((whole,), Actions(num_actions, *ones))

    @property
    def columns(self) -> list[slice]:
        """The slice of the features of each part within a row."""
        ends = accumulate((part.size for part in self.observations), initial=0)
        return [slice(*each) for each in pairwise(ends)]

    @property
    def declared(self) -> tuple[Part, ...]:
        """The parts of a row as they were declared: entities together with their number."""
        following = (*self.observations[1:], None)
        return tuple(
            Part(part.name, part.shape, part.kind, part.categories, part.choices or NO_CHOICES)
            for part, later in zip(self.observations, following, strict=True)
            if later is None or later.kind != "entities"
        )

    def parts(self, observations: Floats) -> list[Values]:
        """
        Split features, float32, [n, num_features], into parts, each [n, *shape].

        Missing entities are zeros.
        """
        if len(self.observations) == 1:
            return [self.observations[0].reshape(observations)]
        shaped: list[Values] = []
        for part, columns in zip(self.observations, self.columns, strict=True):
            values = part.reshape(observations[:, columns])
            if part.kind == "entities":
                values = _present(values, observations[:, columns.start - 1, None])
            shaped.append(values)
        return shaped


def _present(entities: Values, counts: Floats) -> Values:
    """Return entities, [n, most, features], with zeros behind the first of them, [n, 1]."""
    is_there = np.arange(entities.shape[1]) < counts
    if is_there.all():
        return entities
    return np.where(is_there[:, :, None], entities, np.float32(0.0))
