"""A host for WebAssembly guests that learn."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arkml.envs.core.guest_env import GuestEnv
    from arkml.errors import ArkmlError, GuestError, ModuleError
    from arkml.guests.calls import Reply
    from arkml.guests.counts import Statistics
    from arkml.guests.fleet import Fleet, FleetResult
    from arkml.guests.guest import Guest
    from arkml.host import Host
    from arkml.limits import RUN_SECONDS, Limits
    from arkml.runs.access import HiveGrant
    from arkml.runs.settings import LearnerSettings
    from arkml.runtime.compiled_module import CompiledModule
    from arkml.runtime.module.description import EntryPoint, ModuleInfo, ModuleKind
    from arkml.runtime.wasi.linking import Directory, WasiGrant
    from arkml.training.evaluation import evaluate
    from arkml.training.results import (
        EvaluationResult,
        LearningCurve,
        TrainedPolicy,
        TrainingFailed,
        TrainingProgress,
        TrainingResult,
    )
    from arkml.training.trainer import train

__all__ = [
    "RUN_SECONDS",
    "ArkmlError",
    "CompiledModule",
    "Directory",
    "EntryPoint",
    "EvaluationResult",
    "Fleet",
    "FleetResult",
    "Guest",
    "GuestEnv",
    "GuestError",
    "HiveGrant",
    "Host",
    "LearnerSettings",
    "LearningCurve",
    "Limits",
    "ModuleError",
    "ModuleInfo",
    "ModuleKind",
    "Reply",
    "Statistics",
    "TrainedPolicy",
    "TrainingFailed",
    "TrainingProgress",
    "TrainingResult",
    "WasiGrant",
    "evaluate",
    "train",
]

# Imported when first asked for: a command line that only shows its help loads no engine.
_HOMES = {
    "ArkmlError": "arkml.errors",
    "CompiledModule": "arkml.runtime.compiled_module",
    "Directory": "arkml.runtime.wasi.linking",
    "EntryPoint": "arkml.runtime.module.description",
    "EvaluationResult": "arkml.training.results",
    "Fleet": "arkml.guests.fleet",
    "FleetResult": "arkml.guests.fleet",
    "Guest": "arkml.guests.guest",
    "GuestEnv": "arkml.envs.core.guest_env",
    "GuestError": "arkml.errors",
    "HiveGrant": "arkml.runs.access",
    "Host": "arkml.host",
    "LearnerSettings": "arkml.runs.settings",
    "LearningCurve": "arkml.training.results",
    "Limits": "arkml.limits",
    "ModuleError": "arkml.errors",
    "ModuleInfo": "arkml.runtime.module.description",
    "ModuleKind": "arkml.runtime.module.description",
    "RUN_SECONDS": "arkml.limits",
    "Reply": "arkml.guests.calls",
    "Statistics": "arkml.guests.counts",
    "TrainedPolicy": "arkml.training.results",
    "TrainingFailed": "arkml.training.results",
    "TrainingProgress": "arkml.training.results",
    "TrainingResult": "arkml.training.results",
    "WasiGrant": "arkml.runtime.wasi.linking",
    "evaluate": "arkml.training.evaluation",
    "train": "arkml.training.trainer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'arkml' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
