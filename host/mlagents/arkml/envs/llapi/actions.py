"""Actions for a batch of agents, and the specs that they must fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from arkml.base.sealed import Sealed
from arkml.base.short_reprs import short_repr
from arkml.envs.llapi.exception import UnityActionException


class _ActionTupleBase(Sealed, ABC):
    """
    Continuous and discrete actions of the same agents.

    continuous: float32, [agents, continuous_size]; discrete: `discrete_dtype`, [agents, branches].
    If only one half is given, the other one has no columns. Both are None until then.
    """

    def __init__(
        self,
        continuous: NDArray[Any] | None = None,
        discrete: NDArray[Any] | None = None,
    ) -> None:
        self._continuous: NDArray[np.float32] | None = None
        self._discrete: NDArray[Any] | None = None
        if continuous is not None:
            self.add_continuous(continuous)
        if discrete is not None:
            self.add_discrete(discrete)

    @property
    def continuous(self) -> NDArray[np.float32]:
        """Continuous half, float32, [agents, continuous_size]."""
        # None only in a tuple without actions, which is never read.
        return cast("NDArray[np.float32]", self._continuous)

    @property
    def discrete(self) -> NDArray[Any]:
        """Discrete half, `discrete_dtype`, [agents, branches]."""
        return cast("NDArray[Any]", self._discrete)

    def add_continuous(self, continuous: NDArray[Any]) -> None:
        """Set the continuous half, [agents, continuous_size]. Raises UnityActionException."""
        floats = numbers(continuous, np.float32)
        if self._discrete is None:
            self._discrete = np.zeros((continuous.shape[0], 0), dtype=self.discrete_dtype)
        self._continuous = floats

    def add_discrete(self, discrete: NDArray[Any]) -> None:
        """
        Set the discrete half, `discrete_dtype`, [agents, branches].

        Raises UnityActionException, for example for numbers such as 1.5.
        """
        choices = numbers(discrete, self.discrete_dtype)
        if self._continuous is None:
            self._continuous = np.zeros((discrete.shape[0], 0), dtype=np.float32)
        self._discrete = choices

    @property
    @abstractmethod
    def discrete_dtype(self) -> Any:
        """Dtype of a discrete action."""


class ActionTuple(_ActionTupleBase):
    """
    Actions for a batch of agents: float32 [agents, continuous_size], int32 [agents, branches].
    """

    @property
    def discrete_dtype(self) -> Any:
        """Dtype of a discrete action."""
        return np.int32

    @staticmethod
    def copy_of(actions: _ActionTupleBase) -> ActionTuple:
        """Return a copy of actions. Raises UnityActionException."""
        return ActionTuple(actions.continuous.copy(), actions.discrete.copy())


class ActionSpec(NamedTuple):
    """The shape of an action: the number of floats, and the number of choices in each branch."""

    continuous_size: int
    discrete_branches: tuple[int, ...]

    def __str__(self) -> str:
        return f"Continuous: {self.continuous_size}, Discrete: {self.discrete_branches}"

    @property
    def num_continuous_actions(self) -> int:
        """Another name of `continuous_size`."""
        return self.continuous_size

    @property
    def discrete_branch_sizes(self) -> tuple[int, ...]:
        """Another name of `discrete_branches`."""
        return self.discrete_branches

    @property
    def discrete_size(self) -> int:
        """Number of discrete branches."""
        return len(self.discrete_branches)

    def is_discrete(self) -> bool:
        """Return whether all actions are discrete."""
        return self.discrete_size > 0 and self.continuous_size == 0

    def is_continuous(self) -> bool:
        """Return whether all actions are continuous."""
        return self.discrete_size == 0 and self.continuous_size > 0

    def empty_action(self, n_agents: int) -> ActionTuple:
        """Return actions of zeros for `n_agents` agents."""
        return ActionTuple(
            np.zeros((n_agents, self.continuous_size), dtype=np.float32),
            np.zeros((n_agents, self.discrete_size), dtype=np.int32),
        )

    def random_action(self, n_agents: int) -> ActionTuple:
        """Return random actions from numpy's global generator: floats in [-1, 1), and choices."""
        continuous = np.random.uniform(-1.0, 1.0, (n_agents, self.continuous_size))
        discrete = np.zeros((n_agents, self.discrete_size), dtype=np.int32)
        for branch, choices in enumerate(self.discrete_branches):
            discrete[:, branch] = np.random.randint(0, choices, n_agents, dtype=np.int32)
        return ActionTuple(continuous, discrete)

    def _validate_action(self, actions: ActionTuple, n_agents: int, name: str) -> ActionTuple:
        """
        Check actions and return them.

        Raises UnityActionException for a wrong shape, NaN, or a choice that a branch does not have.
        """
        if not isinstance(actions, _ActionTupleBase):
            raise UnityActionException(
                f"The behavior {name} needs an ActionTuple, not {str(actions)[:80]}"
            )
        _check_shape("continuous", actions.continuous, (n_agents, self.continuous_size), name)
        _check_shape("discrete", actions.discrete, (n_agents, self.discrete_size), name)
        if np.isnan(actions.continuous).any():
            row = int(np.argwhere(np.isnan(actions.continuous))[0][0])
            raise UnityActionException(
                f"The behavior {name} received a continuous action that is NaN, in row {row}"
            )
        if self.discrete_size:
            self._check_choices(actions.discrete, name)
        return actions

    def _check_choices(self, discrete: NDArray[Any], name: str) -> None:
        wrong = (discrete < 0) | (discrete >= np.asarray(self.discrete_branches))
        if wrong.any():
            row, branch = (int(index) for index in np.argwhere(wrong)[0])
            raise UnityActionException(
                f"The behavior {name} received the discrete action {discrete[row, branch]} in row "
                f"{row} for branch {branch}, which has {self.discrete_branches[branch]} actions"
            )

    @staticmethod
    def create_continuous(continuous_size: int) -> ActionSpec:
        """Return a spec with continuous actions only."""
        return ActionSpec(continuous_size, ())

    @staticmethod
    def create_discrete(discrete_branches: tuple[int, ...]) -> ActionSpec:
        """Return a spec with discrete actions only."""
        return ActionSpec(0, discrete_branches)

    @staticmethod
    def create_hybrid(continuous_size: int, discrete_branches: tuple[int, ...]) -> ActionSpec:
        """Return a spec with continuous and discrete actions."""
        return ActionSpec(continuous_size, discrete_branches)

    def __repr__(self) -> str:
        return short_repr(self)


def numbers(values: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """
    Convert an array of any shape to a dtype; return it unchanged if it has that dtype.

    Floats that are too large become infinite. Raises UnityActionException for anything but an array
    of numbers, and for values that an integer dtype cannot hold, such as 1.5, NaN or too large
    ones.
    """
    is_array = isinstance(values, np.ndarray) and not isinstance(values, np.ma.MaskedArray)
    if not is_array or values.dtype.kind not in "biuf":
        raise UnityActionException(f"Actions are arrays of numbers, not {str(values)[:80]}")
    if values.dtype == dtype:
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        found = values.astype(dtype)
    if found.dtype.kind in "iu" and (changed := found != values).any():
        raise UnityActionException(
            f"Discrete actions are whole numbers of {found.dtype}, not {values[changed][0]}"
        )
    return found


def _check_shape(
    kind: str, actions: NDArray[Any] | None, expected: tuple[int, int], name: str
) -> None:
    shape = None if actions is None else actions.shape
    if shape != expected:
        raise UnityActionException(
            f"The behavior {name} needs a {kind} input of dimension "
            f"{expected} for (<number of agents>, <action size>) but "
            f"received input of dimension {shape}"
        )
