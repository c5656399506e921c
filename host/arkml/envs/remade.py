"""Environments that pickle as what they were made with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arkml.envs.core.guest_env import GuestEnv


class Remade:
    """
    Pickles by the path and the digest of its module, and its settings, not by what it is doing.

    Another one is made of them, which begins anew, and is refused with UsageError if there is
    another module at the path by then. `_settings` are those that `guest_env` does not know.
    """

    _settings: dict[str, Any]

    @property
    def guest_env(self) -> GuestEnv:
        """The environment that is stepped."""
        raise NotImplementedError

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _remade, (type(self), {**self.guest_env.__getstate__(), **self._settings})


def _remade(kind: Callable[..., Any], settings: dict[str, Any]) -> Any:
    return kind(**settings)
