"""Arrays of the caller into which a vector environment writes the outcome of a step."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import create_empty_array

from arkml.arrays import Marks
from arkml.base.short_reprs import short_repr
from arkml.batches import Floats
from arkml.envs.core.specs import Spec
from arkml.errors import UsageError

Outcome = tuple[Any, Floats, Marks, Marks, dict[str, Any]]
"""The return value of `step` of a vector environment."""


class StepArrays(NamedTuple):
    """
    Arrays into which `step(actions, out=...)` of a vector environment writes.

    The arrays are contiguous, in C order and writable, and share no memory.

    Attributes:
        observations: float32, [num_envs, *shape], or a dict of such arrays if an observation has
            several parts.
        rewards: float32, [num_envs].
        terminations: bool, [num_envs].
        truncations: bool, [num_envs].
        present: bool, [num_envs], False for a sub-environment without an agent.

    Example:
        out = StepArrays.empty(envs)
        observations, rewards, terminated, truncated, info = envs.step(actions, out=out)

    """

    observations: Any
    rewards: Floats
    terminations: Marks
    truncations: Marks
    present: Marks

    @staticmethod
    def empty(envs: VectorEnv[Any, Any, Any]) -> StepArrays:
        """Return new arrays of zeros for a vector environment."""
        observations = create_empty_array(envs.single_observation_space, envs.num_envs)
        marks = (np.zeros(envs.num_envs, bool) for _ in range(3))
        return StepArrays(observations, np.zeros(envs.num_envs, np.float32), *marks)

    def require(self, spec: Spec, count: int) -> None:
        """
        Raise UsageError if the arrays do not fit `count` agents with this spec.

        Arrays that share memory do not fit either.
        """
        parts = spec.observations
        if len(parts) == 1:
            _require("observations", self.observations, (count, *parts[0].shape), parts[0].dtype)
        else:
            names = {part.name for part in parts}
            if not isinstance(self.observations, dict) or set(self.observations) != names:
                raise UsageError(f"out.observations is a dict of the parts {sorted(names)}")
            for part in parts:
                name, shape = f"observations[{part.name!r}]", (count, *part.shape)
                _require(name, self.observations[part.name], shape, part.dtype)
        shape = (count,)
        _require("rewards", self.rewards, shape, _FLOAT)
        for name, array in zip(self._fields[2:], self[2:], strict=True):
            _require(name, array, shape, _MARK)
        named = [*self._observed(), *zip(self._fields[1:], self[1:], strict=True)]
        for (one, first), (other, second) in combinations(named, 2):
            if np.may_share_memory(first, second):  # by their bounds: they are contiguous
                raise UsageError(f"out.{one} and out.{other} have memory in common")

    def _observed(self) -> Iterable[tuple[str, Floats]]:
        """Return the arrays of observations with their names."""
        if not isinstance(self.observations, dict):
            return [("observations", self.observations)]
        return [(f"observations[{name!r}]", part) for name, part in self.observations.items()]

    def filled(self, outcome: Outcome) -> Outcome:
        """
        Copy an outcome into these arrays, and return them as an outcome; the info has `present`.
        """
        observations, rewards, terminated, truncated, info = outcome
        if isinstance(observations, dict):
            for name, part in observations.items():
                self.observations[name][...] = part
            seen: Any = {
                name: self.observations[name] for name in observations
            }  # in the row's order
        else:
            seen = self.observations
            seen[...] = observations
        self.rewards[...] = rewards
        self.terminations[...] = terminated
        self.truncations[...] = truncated
        self.present[...] = info["present"]
        info["present"] = self.present
        return seen, self.rewards, self.terminations, self.truncations, info

    def __repr__(self) -> str:
        return short_repr(self)


class ArrayCheck:
    """
    Checks arrays of a caller for `count` agents with `spec`, quickly if they are the same again.
    """

    def __init__(self, spec: Spec, count: int) -> None:
        self._spec = spec
        self._count = count
        self._known: StepArrays | None = None  # which have no memory in common
        self._shapes: list[tuple[Any, tuple[int, ...], np.dtype[Any]]] = []  # of the known ones

    def require(self, out: object) -> None:
        """Raise UsageError unless `out` is a `StepArrays` that fits; see `StepArrays.require`."""
        if out is self._known and out is not None:
            for array, shape, dtype in self._shapes:
                if not (array.flags.carray and array.shape == shape and array.dtype is dtype):
                    break
            else:
                return
        if not isinstance(out, StepArrays):
            raise UsageError(f"out= takes StepArrays, not {type(out).__name__}")
        out.require(self._spec, self._count)
        if not isinstance(out.observations, dict):  # which may be changed
            self._known = out
            self._shapes = [(array, array.shape, array.dtype) for array in out]


_FLOAT, _MARK = np.dtype(np.float32), np.dtype(np.bool_)


def _require(name: str, array: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise UsageError if an array cannot be written to, or is another one than is needed."""
    if (
        isinstance(array, np.ndarray)
        and array.dtype == dtype
        and array.shape == shape
        and array.flags.carray  # in C order, aligned and writable
    ):
        return
    wanted = f"a writable array of {dtype}, {list(shape)}, in C order"
    if not isinstance(array, np.ndarray):
        raise UsageError(f"out.{name} is {wanted}, not {type(array).__name__}")
    order = "in C order" if array.flags.c_contiguous else "not in C order"
    access = "writable" if array.flags.writeable else "read-only"
    found = f"{array.dtype}, {list(array.shape)}, {order}, {access}"
    if not array.flags.aligned:
        found += ", not aligned"
    raise UsageError(f"out.{name} is {wanted}, not one of {found}")
