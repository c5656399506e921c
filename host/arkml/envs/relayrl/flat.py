"""The flat views of versions 1.2 and 1.3 of the traits: observations and actions as bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from arkml.batches import Floats
from arkml.envs.relayrl import checks
from arkml.envs.relayrl.guests import GuestScalarEnvironment, GuestVectorEnvironment
from arkml.envs.relayrl.kinds import EnvironmentError, EnvironmentUuid

_LITTLE = np.dtype("<f4")

ScalarBytes = tuple[bytes, bytes | None, float, bool, bool]
VectorBytes = tuple[bytes, bytes | None, list[float], list[bool], list[bool]]


class FlatScalar:
    """
    One environment, its observations and actions as little-endian float32.

    A step that cannot be made is None, as the traits have it. Every action is allowed, so masks
    are None.
    """

    def __init__(self, environment: GuestScalarEnvironment) -> None:
        self._environment = environment

    def observation_dim(self) -> int:
        return len(self._environment.build_observation())

    def action_dim(self) -> int:
        return self._environment.num_actions

    def action_is_discrete(self) -> bool:
        return False

    def flat_observation_bytes(self) -> bytes:
        """The present observation; none before the first reset."""
        return _observation(self._environment)

    def build_mask(self) -> Any:
        return None

    def flat_mask_bytes(self) -> bytes | None:
        return None

    def reset(self) -> bytes:
        """The first observation of an episode. Raises EnvironmentError."""
        return _bytes(self._environment.reset().observation)

    def step_bytes(self, action: bytes) -> ScalarBytes | None:
        """Observation, mask, reward, done, truncated."""
        try:
            found = self._environment.step(_floats(action))
        except EnvironmentError:
            return None
        return _bytes(found.observation), None, found.reward, found.terminated, found.truncated


class FlatVector:
    """All environments of a vector, one after another in the order of their ids."""

    def __init__(self, environment: GuestVectorEnvironment) -> None:
        self._environment = environment
        self._ids: list[EnvironmentUuid] = []

    def init_num_envs(self, num_envs: int) -> list[EnvironmentUuid]:
        self._ids = self._environment.init_num_envs(num_envs)
        return self._ids

    def n_envs(self) -> int:
        return len(self._ids)

    def observation_dim(self) -> int:
        return int(self._environment.build_observation().shape[1])

    def action_dim(self) -> int:
        return self._environment.num_actions

    def action_is_discrete(self) -> bool:
        return False

    def flat_observation_bytes(self) -> bytes:
        """The present observations; none before all were reset."""
        return _observation(self._environment)

    def build_mask(self) -> Any:
        return None

    def flat_mask_bytes(self) -> bytes | None:
        return None

    def reset(self, env_ids: list[EnvironmentUuid]) -> list[bytes]:
        """The first observations of episodes. Raises EnvironmentError."""
        return [_bytes(found.observation) for found in self._environment.reset(env_ids)]

    def step_bytes(self, actions: bytes) -> VectorBytes | None:
        """Observations, mask, rewards, dones, truncateds."""
        try:
            values = _floats(actions)
            width = self.action_dim()
            if len(values) != width * len(self._ids):
                raise checks.refused(f"{len(values)} numbers are no {len(self._ids)} actions")
            rows = values.reshape(len(self._ids), width)
            found = self._environment.step(list(zip(self._ids, rows, strict=True)))
        except EnvironmentError:
            return None
        return (
            b"".join(_bytes(step.observation) for step in found),
            None,
            [step.reward for step in found],
            [step.terminated for step in found],
            [step.truncated for step in found],
        )


def _observation(environment: GuestScalarEnvironment | GuestVectorEnvironment) -> bytes:
    try:
        return _bytes(environment.build_observation())
    except EnvironmentError:
        return b""


def _bytes(values: Floats) -> bytes:
    return np.ascontiguousarray(values, _LITTLE).tobytes()


def _floats(data: bytes) -> Floats:
    if len(data) % _LITTLE.itemsize:
        raise checks.refused(f"{len(data)} bytes are no float32 numbers")
    return np.frombuffer(data, _LITTLE).astype(np.float32)
