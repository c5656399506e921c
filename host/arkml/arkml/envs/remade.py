"""Pickling of environments by their options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arkml.envs.core.guest_env import GuestEnv


class Remade:
    """
    A mixin that pickles the path and the digest of the module, and the options.

    Unpickling makes a new environment, which starts over. It raises UsageError if the module at the
    path has changed. `_settings` has the options that `guest_env` lacks.
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
