"""The entry of a registry that others derive from."""

from __future__ import annotations

from typing import Any

from arkml.envs.llapi.base_env import BaseEnv


class BaseRegistryEntry:
    """An environment that can be made."""

    def __init__(
        self, identifier: str, expected_reward: float | None, description: str | None
    ) -> None:
        self._identifier = identifier
        self._expected_reward = expected_reward
        self._description = description

    @property
    def identifier(self) -> str:
        """Its name in the registry."""
        return self._identifier

    @property
    def expected_reward(self) -> float | None:
        """The sum of rewards from which on the task counts as solved."""
        return self._expected_reward

    @property
    def description(self) -> str | None:
        """A text for people: its task, its rewards, and the arguments of `make`."""
        return self._description

    def make(self, **kwargs: Any) -> BaseEnv:
        """Return the environment, running. `kwargs` are the entry's own."""
        del kwargs
        raise NotImplementedError(f"The make() method not implemented for entry {self.identifier}")
