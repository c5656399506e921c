"""A host for WebAssembly guests that learn."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arkml.environment.guest_env import GuestEnv
    from arkml.errors import ArkmlError, GuestError, ModuleError
    from arkml.fleet import Fleet
    from arkml.guest import Guest, Reply
    from arkml.hives import HiveGrant
    from arkml.host import Host
    from arkml.limits import Limits
    from arkml.runtime.module.description import EntryPoint, ModuleInfo, ModuleKind
    from arkml.runtime.program import Program
    from arkml.runtime.wasi.linking import Directory, WasiGrant
    from arkml.statistics import Statistics

__all__ = [
    "ArkmlError",
    "Directory",
    "EntryPoint",
    "Fleet",
    "Guest",
    "GuestEnv",
    "GuestError",
    "HiveGrant",
    "Host",
    "Limits",
    "ModuleError",
    "ModuleInfo",
    "ModuleKind",
    "Program",
    "Reply",
    "Statistics",
    "WasiGrant",
]

# Imported when first asked for: a command line that only shows its help loads no engine.
_HOMES = {
    "ArkmlError": "arkml.errors",
    "Directory": "arkml.runtime.wasi.linking",
    "EntryPoint": "arkml.runtime.module.description",
    "Fleet": "arkml.fleet",
    "Guest": "arkml.guest",
    "GuestEnv": "arkml.environment.guest_env",
    "GuestError": "arkml.errors",
    "HiveGrant": "arkml.hives",
    "Host": "arkml.host",
    "Limits": "arkml.limits",
    "ModuleError": "arkml.errors",
    "ModuleInfo": "arkml.runtime.module.description",
    "ModuleKind": "arkml.runtime.module.description",
    "Program": "arkml.runtime.program",
    "Reply": "arkml.guest",
    "Statistics": "arkml.statistics",
    "WasiGrant": "arkml.runtime.wasi.linking",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'arkml' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
