"""Gymnasium's spec of a made environment, shown without the bytes of its module."""

from __future__ import annotations

import copy
from typing import Any

from gymnasium.envs.registration import EnvSpec


class ModuleBytes(bytes):
    """The bytes of a wasm module, equal to the original bytes but with a short `repr`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{len(self):,} bytes>"


class MadeSpec:
    """
    A mixin whose `spec`, which Gymnasium sets and shows, has a short `repr`.

    The environment can be made again from the spec: the module is still among its keyword
    arguments.
    """

    _made_spec: EnvSpec | None = None

    @property
    def spec(self) -> EnvSpec | None:
        """The spec by which `gymnasium.make` or `make_vec` made this environment, or None."""
        return self._made_spec

    @spec.setter
    def spec(self, spec: Any) -> None:
        if isinstance(spec, EnvSpec) and isinstance(module := spec.kwargs.get("module"), bytes):
            spec = copy.copy(spec)
            spec.kwargs = {**spec.kwargs, "module": ModuleBytes(module)}
        self._made_spec = spec
