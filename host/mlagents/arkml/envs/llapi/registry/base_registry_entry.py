"""The base class of registry entries."""

from __future__ import annotations

from typing import Any

from arkml.envs.llapi.base_env import BaseEnv


class BaseRegistryEntry:
    """An environment that the registry can start."""

    def __init__(
        self, identifier: str, expected_reward: float | None, description: str | None
    ) -> None:
        self._identifier = identifier
        self._expected_reward = expected_reward
        self._description = description

    @property
    def identifier(self) -> str:
        """The name of the environment in the registry."""
        return self._identifier

    @property
    def expected_reward(self) -> float | None:
        """Sum of rewards at which the task counts as solved."""
        return self._expected_reward

    @property
    def description(self) -> str | None:
        """Description of the task, its rewards, and the arguments of `make`."""
        return self._description

    def make(self, **kwargs: Any) -> BaseEnv:
        """Start the environment and return it. `kwargs` depend on the entry."""
        del kwargs
        raise NotImplementedError(f"The make() method not implemented for entry {self.identifier}")
