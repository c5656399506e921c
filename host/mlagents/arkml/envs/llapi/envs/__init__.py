"""
PettingZoo environments of the default registry: `from … import Basic`, then `Basic.env()`.

The registry is fetched at the first access. In names that are not identifiers the 3 is written out:
3DBall, for example, is ThreeDBall.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any


def __getattr__(name: str) -> Any:
    # Also called for submodules and by tools that inspect modules: neither may fetch anything.
    if name.startswith("_") or find_spec(f"{__name__}.{name}") is not None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from arkml.envs.llapi.envs.pettingzoo_env_factory import PettingZooEnvFactory
    from arkml.envs.llapi.registry import default_registry

    key = _key_of(name)
    if key is None:
        default_registry.get(name)  # retries failed manifests, and raises their errors
        key = _key_of(name)
    if key is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return PettingZooEnvFactory(key)


def _key_of(name: str) -> str | None:
    """Return the registry entry that this name imports."""
    from arkml.envs.llapi.registry import default_registry

    for key in default_registry:
        if name == (key.replace("3", "Three") if key[:1].isdigit() else key):
            return key
    return None
