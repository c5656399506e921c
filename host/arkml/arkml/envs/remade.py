"""Pickling of environments as their options, to be made again elsewhere."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

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
        """The underlying environment of the guest."""
        raise NotImplementedError

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy in the same state; see `GuestEnv.clone`. Raises StateRefused."""
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        env = copy.deepcopy(self.guest_env, memo)  # first: others refer to its parts
        try:
            parts = {name: copy.deepcopy(each, memo) for name, each in vars(self).items()}
        except BaseException:
            env.close()
            raise
        vars(copied).update(parts)
        return copied

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _remade, (type(self), {**self.guest_env.__getstate__(), **self._settings})


def _remade(kind: Callable[..., Any], settings: dict[str, Any]) -> Any:
    return kind(**settings)
