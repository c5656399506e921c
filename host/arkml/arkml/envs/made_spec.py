"""The specification by which Gymnasium made an environment, without the bytes of its module."""

from __future__ import annotations

import copy
from typing import Any

from gymnasium.envs.registration import EnvSpec


class ModuleBytes(bytes):
    """The bytes of a module, which equal the original bytes, with a short representation."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{len(self):,} bytes>"


class MadeSpec:
    """
    A mixin whose `spec`, which Gymnasium sets and shows, has a short representation.

    The environment can be made anew by it: the module is among its keyword arguments, as before.
    """

    _made_spec: EnvSpec | None = None

    @property
    def spec(self) -> EnvSpec | None:
        """The specification by which `gymnasium.make` or `make_vec` made it, or None."""
        return self._made_spec

    @spec.setter
    def spec(self, spec: Any) -> None:
        if isinstance(spec, EnvSpec) and isinstance(module := spec.kwargs.get("module"), bytes):
            spec = copy.copy(spec)
            spec.kwargs = {**spec.kwargs, "module": ModuleBytes(module)}
        self._made_spec = spec
