"""Specs of the observations and actions of behaviors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, IntFlag
from typing import NamedTuple

from arkml.base.sealed import Sealed
from arkml.base.short_reprs import short_repr
from arkml.envs.llapi.actions import ActionSpec

BehaviorName = str


class DimensionProperty(IntFlag):
    """Properties of one dimension of an observation."""

    UNSPECIFIED = 0
    NONE = 1  # nothing special: fit for fully connected networks
    TRANSLATIONAL_EQUIVARIANCE = 2  # fit for a convolution
    VARIABLE_SIZE = 4  # any number of entries, in no order


class ObservationType(Enum):
    """Kinds of observations."""

    DEFAULT = 0
    GOAL_SIGNAL = 1  # describes the agent's goal


class ObservationSpec(NamedTuple):
    """
    One observation of an agent.

    Args:
        shape: Shape of the array.
        dimension_property: Property of each dimension.
        observation_type: Kind of the observation, for example a goal.
        name: Name of the observation.

    """

    shape: tuple[int, ...]
    dimension_property: tuple[DimensionProperty, ...]
    observation_type: ObservationType
    name: str

    def __repr__(self) -> str:
        return short_repr(self)


class BehaviorSpec(NamedTuple):
    """The observations of a behavior's agents, in order, and the actions."""

    observation_specs: list[ObservationSpec]
    action_spec: ActionSpec

    def __repr__(self) -> str:
        return short_repr(self)


class BehaviorMapping(Sealed, Mapping[BehaviorName, BehaviorSpec]):
    """Behaviors known so far. Read-only, but grows while the environment runs."""

    def __init__(self, specs: dict[BehaviorName, BehaviorSpec]) -> None:
        self._dict = specs

    def __len__(self) -> int:
        return len(self._dict)

    def __getitem__(self, behavior: BehaviorName) -> BehaviorSpec:
        return self._dict[behavior]

    def __iter__(self) -> Iterator[BehaviorName]:
        return iter(self._dict)
