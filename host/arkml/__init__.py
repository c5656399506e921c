"""A host for WebAssembly guests that learn."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arkml.envs.core.guest_env import GuestEnv
    from arkml.errors import ArkmlError, GuestError, ModuleError
    from arkml.guests.calls import Reply
    from arkml.guests.counts import Statistics
    from arkml.guests.fleet import Fleet
    from arkml.guests.fleet_call import FleetResult
    from arkml.guests.guest import Guest
    from arkml.host import Host
    from arkml.limits import RUN_SECONDS, Limits
    from arkml.runs.access import HiveGrant
    from arkml.runtime.compiled_module import CompiledModule
    from arkml.runtime.module.description import EntryPoint, ModuleInfo, ModuleKind
    from arkml.runtime.wasi.linking import Directory, WasiGrant

__all__ = [
    "RUN_SECONDS",
    "ArkmlError",
    "CompiledModule",
    "Directory",
    "EntryPoint",
    "Fleet",
    "FleetResult",
    "Guest",
    "GuestEnv",
    "GuestError",
    "HiveGrant",
    "Host",
    "Limits",
    "ModuleError",
    "ModuleInfo",
    "ModuleKind",
    "Reply",
    "Statistics",
    "WasiGrant",
]

# Imported when first asked for: a command line that only shows its help loads no engine.
_HOMES = {
    "ArkmlError": "arkml.errors",
    "Directory": "arkml.runtime.wasi.linking",
    "EntryPoint": "arkml.runtime.module.description",
    "Fleet": "arkml.guests.fleet",
    "FleetResult": "arkml.guests.fleet_call",
    "Guest": "arkml.guests.guest",
    "GuestEnv": "arkml.envs.core.guest_env",
    "GuestError": "arkml.errors",
    "HiveGrant": "arkml.runs.access",
    "Host": "arkml.host",
    "Limits": "arkml.limits",
    "ModuleError": "arkml.errors",
    "ModuleInfo": "arkml.runtime.module.description",
    "ModuleKind": "arkml.runtime.module.description",
    "CompiledModule": "arkml.runtime.compiled_module",
    "Reply": "arkml.guests.calls",
    "RUN_SECONDS": "arkml.limits",
    "Statistics": "arkml.guests.counts",
    "WasiGrant": "arkml.runtime.wasi.linking",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'arkml' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
