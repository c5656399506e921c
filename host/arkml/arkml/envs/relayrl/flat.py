"""The flat views of versions 1.2 and 1.3 of the traits: observations and actions as bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.arrays import Marks
from arkml.base.sealed import Sealed
from arkml.batches import Floats
from arkml.envs.core.decisions import Behavior
from arkml.envs.core.specs import Actions
from arkml.envs.relayrl import checks
from arkml.envs.relayrl.guests import GuestScalarEnvironment, GuestVectorEnvironment
from arkml.envs.relayrl.kinds import EnvironmentError, EnvironmentUuid

_LITTLE = np.dtype("<f4")
_CHOICES = 256  # values of a byte

Flags = npt.NDArray[np.uint8]
ScalarBytes = tuple[bytes, bytes | None, float, bool, bool]
VectorBytes = tuple[bytes, bytes | None, list[float], list[bool], list[bool]]


class _Flat(Sealed):
    """
    The common part of both views: widths, masks, and actions as bytes.

    Observations are little-endian float32, and so are actions, [num_actions] each. If there are
    only branches, an action may also be one byte, the number of a choice. The choices of several
    branches are numbered together, the last branch varying fastest. A mask is one byte for each of
    these numbers, 1 for an allowed choice; guests without branches have no masks.

    Methods raise EnvironmentError if the guest does not start, or has more than 256 choices.
    """

    def __init__(self, environment: GuestScalarEnvironment | GuestVectorEnvironment) -> None:
        self._environment = environment

    def observation_dim(self) -> int:
        """Return the number of features of an observation."""
        return self._behavior.num_features

    def action_dim(self) -> int:
        """Return the number of choices, or of numbers in an action with floats."""
        if self.action_is_discrete():
            return _count(self._actions)
        return self._behavior.num_actions

    def action_is_discrete(self) -> bool:
        """Return whether an action consists of choices of branches only."""
        return bool(self._actions.branches) and not self._actions.continuous

    def flat_observation_bytes(self) -> bytes:
        """Return the present observations, or no bytes before all environments were reset."""
        try:
            return _bytes(self._environment.build_observation())
        except EnvironmentError:
            return b""

    def build_mask(self) -> Flags | None:
        """Return the allowed choices, uint8, [choices], of a vector [n, choices], or None."""
        masks = self._masks()
        if masks is None or isinstance(self._environment, GuestVectorEnvironment):
            return masks
        (one,) = masks
        return np.asarray(one, np.uint8)

    def flat_mask_bytes(self) -> bytes | None:
        """Return the mask as bytes, or None; before a reset all choices are allowed."""
        masks = self._masks()
        return None if masks is None else masks.tobytes()

    @property
    def _behavior(self) -> Behavior:
        return self._environment.behavior

    @property
    def _actions(self) -> Actions:
        return self._behavior.spec.actions

    def _masks(self) -> Flags | None:
        """Return the masks, uint8, [n, choices], or None without branches."""
        if not self._actions.branches:
            return None
        count = _count(self._actions)
        rows = [_allowed(masks) for masks in self._environment.masks]
        return np.array(rows, np.uint8).reshape(len(rows), count)

    def _taken(self, data: bytes, count: int) -> Floats:
        """Return actions of `count` environments, float32, [count, num_actions], from bytes."""
        self._masks()  # raises EnvironmentError if masks cannot be returned
        data = checks.content(data)
        if self.action_is_discrete() and len(data) == count:
            return _columns(np.frombuffer(data, np.uint8), self._actions)
        width = self._behavior.num_actions
        if len(data) != _LITTLE.itemsize * width * count:
            raise checks.refused(f"{len(data)} bytes for {count} actions of {width} numbers")
        return np.frombuffer(data, _LITTLE).astype(np.float32).reshape(count, width)


class FlatScalar(_Flat):
    """One environment with observations and actions as bytes; a step that fails returns None."""

    _environment: GuestScalarEnvironment

    def __init__(self, environment: GuestScalarEnvironment) -> None:
        super().__init__(environment)

    def reset(self) -> bytes:
        """Return the first observation of an episode. Raises EnvironmentError."""
        return _bytes(self._environment.reset().observation)

    def step_bytes(self, action: bytes) -> ScalarBytes | None:
        """Step the environment. Returns observation, mask, reward, done and truncated, or None."""
        try:
            step = self._environment.step(self._taken(action, 1)[0])
        except EnvironmentError:
            return None
        mask = self.flat_mask_bytes()
        return _bytes(step.observation), mask, step.reward, step.terminated, step.truncated


class FlatVector(_Flat):
    """All environments of a vector, with observations and actions as bytes in the order of ids."""

    _environment: GuestVectorEnvironment

    def __init__(self, environment: GuestVectorEnvironment) -> None:
        super().__init__(environment)

    def init_num_envs(self, num_envs: int) -> list[EnvironmentUuid]:
        return self._environment.init_num_envs(num_envs)

    def n_envs(self) -> int:
        """Return the number of environments, including environments made before this view."""
        return len(self._environment.env_ids)

    def reset(self, env_ids: list[EnvironmentUuid]) -> list[bytes]:
        """Begin episodes, and return their first observations. Raises EnvironmentError."""
        return [_bytes(reset.observation) for reset in self._environment.reset(env_ids)]

    def step_bytes(self, actions: bytes) -> VectorBytes | None:
        """
        Step all environments. Returns observations, masks, rewards, dones and truncateds, or None.
        """
        try:
            ids = self._environment.env_ids
            rows = self._taken(actions, len(ids))
            steps = self._environment.step(list(zip(ids, rows, strict=True)))
        except EnvironmentError:
            return None
        return (
            b"".join(_bytes(step.observation) for step in steps),
            self.flat_mask_bytes(),
            [step.reward for step in steps],
            [step.terminated for step in steps],
            [step.truncated for step in steps],
        )


def _count(actions: Actions) -> int:
    """Return the number of combinations of all branches' choices. Raises EnvironmentError."""
    count = math.prod(actions.branches)
    if count > _CHOICES:
        raise checks.refused(f"a flat view has at most {_CHOICES} choices, this guest {count}")
    return count


def _columns(numbers: Flags, actions: Actions) -> Floats:
    """Return the choice of each branch for numbers, uint8, [n]: float32, [n, branches]."""
    if (numbers >= _count(actions)).any():
        raise checks.refused(
            f"choices are numbers from 0 to {_count(actions) - 1}, not {int(numbers.max())}"
        )
    choices = np.unravel_index(numbers, actions.branches)
    return np.stack(choices, axis=1).astype(np.float32)


def _allowed(masks: Sequence[Marks]) -> npt.NDArray[Any]:
    """Return the allowed combinations of all branches' choices, bool, [choices]."""
    allowed: npt.NDArray[Any] = np.ones(1, bool)
    for mask in masks:
        allowed = np.logical_and.outer(allowed, ~mask).ravel()
    return allowed


def _bytes(values: Floats) -> bytes:
    return np.ascontiguousarray(values, _LITTLE).tobytes()
