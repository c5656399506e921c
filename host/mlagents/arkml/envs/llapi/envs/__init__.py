"""
The environments of the default registry for PettingZoo: `from … import Basic`, then `Basic.env()`.

The registry is fetched when the first of them is asked for. A name that is not an identifier
has its 3 written out: 3DBall is ThreeDBall.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any


def __getattr__(name: str) -> Any:
    # Also asked for submodules and by inspections of modules: neither may fetch anything.
    if name.startswith("_") or find_spec(f"{__name__}.{name}") is not None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from arkml.envs.llapi.envs.pettingzoo_env_factory import PettingZooEnvFactory
    from arkml.envs.llapi.registry import default_registry

    key = _key_of(name)
    if key is None:
        default_registry.get(name)  # reads again what could not be read, and raises if it cannot be
        key = _key_of(name)
    if key is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return PettingZooEnvFactory(key)


def _key_of(name: str) -> str | None:
    """Return the entry of the registry that is imported by this name."""
    from arkml.envs.llapi.registry import default_registry

    for key in default_registry:
        if name == (key.replace("3", "Three") if key[:1].isdigit() else key):
            return key
    return None
