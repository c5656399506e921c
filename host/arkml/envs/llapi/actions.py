"""Actions of both types, and what a behaviour takes; public in `base_env`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.envs.llapi.exception import UnityActionException

Array = npt.NDArray[Any]


class _ActionTupleBase(ABC):
    """Continuous and discrete actions, [n_agents, size] each; the one not given has size 0."""

    def __init__(self, continuous: Array | None = None, discrete: Array | None = None) -> None:
        self._continuous: Array | None = None
        self._discrete: Array | None = None
        if continuous is not None:
            self.add_continuous(continuous)
        if discrete is not None:
            self.add_discrete(discrete)

    @property
    def continuous(self) -> Array | None:
        """float32, [n_agents, continuous_size]; None while no action was given."""
        return self._continuous

    @property
    def discrete(self) -> Array | None:
        """`discrete_dtype`, [n_agents, discrete_size]; None while no action was given."""
        return self._discrete

    def add_continuous(self, continuous: Array) -> None:
        """Set the continuous actions; they become float32."""
        if self._discrete is None:
            self._discrete = np.zeros((len(continuous), 0), self.discrete_dtype)
        self._continuous = continuous.astype(np.float32, copy=False)

    def add_discrete(self, discrete: Array) -> None:
        """Set the discrete actions; they become `discrete_dtype`."""
        if self._continuous is None:
            self._continuous = np.zeros((len(discrete), 0), np.float32)
        self._discrete = discrete.astype(self.discrete_dtype, copy=False)

    @property
    @abstractmethod
    def discrete_dtype(self) -> Any:
        """The dtype of discrete actions."""


class ActionTuple(_ActionTupleBase):
    """Actions as environments take them."""

    @property
    def discrete_dtype(self) -> Any:
        """int32."""
        return np.int32


class ActionSpec(NamedTuple):
    """
    What a behaviour takes: so many floats, and a choice in each discrete branch.

    `num_continuous_actions` and `discrete_branch_sizes` are other names of the two fields.
    """

    continuous_size: int
    discrete_branches: tuple[int, ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple) or len(other) != 2:
            return NotImplemented
        return (self.continuous_size, tuple(self.discrete_branches)) == tuple(other)

    def __hash__(self) -> int:
        return hash((self.continuous_size, tuple(self.discrete_branches)))

    def __str__(self) -> str:
        return f"Continuous: {self.continuous_size}, Discrete: {self.discrete_branches}"

    @property
    def num_continuous_actions(self) -> int:
        return self.continuous_size

    @property
    def discrete_branch_sizes(self) -> tuple[int, ...]:
        return self.discrete_branches

    def is_discrete(self) -> bool:
        """Whether all of it is discrete."""
        return self.discrete_size > 0 and self.continuous_size == 0

    def is_continuous(self) -> bool:
        """Whether all of it is continuous."""
        return self.discrete_size == 0 and self.continuous_size > 0

    @property
    def discrete_size(self) -> int:
        """The number of discrete branches."""
        return len(self.discrete_branches)

    def empty_action(self, n_agents: int) -> ActionTuple:
        """Zeros for so many agents."""
        return ActionTuple(
            np.zeros((n_agents, self.continuous_size), np.float32),
            np.zeros((n_agents, self.discrete_size), np.int32),
        )

    def random_action(self, n_agents: int) -> ActionTuple:
        """Uniform actions for so many agents, from numpy's global generator as in the original."""
        shape = (n_agents, self.continuous_size)
        continuous = np.random.uniform(-1.0, 1.0, shape)
        discrete = np.zeros((n_agents, self.discrete_size), np.int32)
        for branch, size in enumerate(self.discrete_branches):
            discrete[:, branch] = np.random.randint(0, size, n_agents, np.int32)
        return ActionTuple(continuous, discrete)

    @staticmethod
    def create_continuous(continuous_size: int) -> ActionSpec:
        """One with floats only."""
        return ActionSpec(continuous_size, ())

    @staticmethod
    def create_discrete(discrete_branches: tuple[int, ...]) -> ActionSpec:
        """One with discrete branches only."""
        return ActionSpec(0, discrete_branches)

    @staticmethod
    def create_hybrid(continuous_size: int, discrete_branches: tuple[int, ...]) -> ActionSpec:
        """One with both."""
        return ActionSpec(continuous_size, discrete_branches)

    def _validate_action(self, actions: ActionTuple, n_agents: int, name: str) -> ActionTuple:
        """See `validated`."""
        return validated(self, actions, n_agents, name)


def validated(spec: ActionSpec, actions: ActionTuple, n_agents: int, name: str) -> ActionTuple:
    """
    The actions themselves if they fit the specification of behaviour `name`.

    Raises UnityActionException: for a wrong shape with the original's text; and, where the
    original would pass them on, for NaN and for choices that a branch does not have.
    """
    for kind, values, width in (
        ("continuous", actions.continuous, spec.continuous_size),
        ("discrete", actions.discrete, spec.discrete_size),
    ):
        shape = None if values is None else values.shape
        if shape != (n_agents, width):
            raise UnityActionException(
                f"The behavior {name} needs a {kind} input of dimension "
                f"{(n_agents, width)} for (<number of agents>, <action size>) but "
                f"received input of dimension {shape}"
            )
    _require_sense(spec, actions, name)
    return actions


def _require_sense(spec: ActionSpec, actions: ActionTuple, name: str) -> None:
    continuous, discrete = actions.continuous, actions.discrete
    assert continuous is not None
    assert discrete is not None
    if not np.isfinite(continuous).all():
        raise UnityActionException(
            f"The behavior {name} received a continuous action that is not finite"
        )
    wrong = (discrete < 0) | (discrete >= np.array(spec.discrete_branches, np.int64))
    if wrong.any():
        row, branch = np.argwhere(wrong)[0]
        raise UnityActionException(
            f"The behavior {name} received choice {discrete[row, branch]} in branch {branch},"
            f" which has {spec.discrete_branches[branch]} choices"
        )
