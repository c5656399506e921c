"""A host for WebAssembly guests that learn."""

from __future__ import annotations

from importlib import import_module
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arkml.batches import Batch
    from arkml.envs.core.env_options import GuestEnvOptions
    from arkml.envs.core.guest_env import GuestEnv
    from arkml.errors import (
        ArkmlError,
        CmdletFailed,
        GameFunctionFailed,
        GuestBusy,
        GuestCancelled,
        GuestError,
        GuestExit,
        GuestFailed,
        GuestTimeout,
        GuestTrap,
        HiveError,
        InstanceLimitExceeded,
        LinkError,
        ModuleError,
        PolicyFailed,
        ReloadUndone,
        ReplayDiffers,
        StateRefused,
        TraceRefused,
        UsageError,
    )
    from arkml.guests.call_loop import Reply
    from arkml.guests.counts import Statistics
    from arkml.guests.fleet import Fleet, GuestTime
    from arkml.guests.fleet_call import FleetResult
    from arkml.guests.guest import Guest
    from arkml.guests.reloading import Reloaded
    from arkml.guests.snapshots import FleetSnapshot, GuestSnapshot
    from arkml.guests.trace_player import ReplayedCall, ReplayedSubmit
    from arkml.guests.trace_recorder import Trace
    from arkml.host import Host
    from arkml.limits import RUN_SECONDS, Limits
    from arkml.policies.policy import Policy
    from arkml.publishing.publication import PublishedSite, publish
    from arkml.replays.replay import Replay, ReplayedFrame
    from arkml.runs.hive_access import HiveGrant
    from arkml.runs.learner_settings import LearnerSettings
    from arkml.runtime.account import Usage
    from arkml.runtime.compiled_module import CompiledModule
    from arkml.runtime.game_functions import CallingGuest, CallingGuests, Memory, game_function
    from arkml.runtime.module.description import EntryPoint, ModuleInfo, ModuleKind
    from arkml.runtime.wasi.linking import Directory, WasiGrant
    from arkml.training.evaluation import evaluate
    from arkml.training.guest_trainer import train
    from arkml.training.recording import Recording, record
    from arkml.training.results import (
        Evaluation,
        EvaluationResult,
        LearningCurve,
        PolicyKind,
        ProgressFunction,
        TrainedPolicy,
        TrainingEnd,
        TrainingFailed,
        TrainingProgress,
        TrainingResult,
        WorkerProgress,
    )

    __version__: str

# The packages of the repository have source roots of their own; installed, they share a folder.
__path__ = extend_path(__path__, __name__)

__all__ = [
    "RUN_SECONDS",
    "ArkmlError",
    "Batch",
    "CallingGuest",
    "CallingGuests",
    "CmdletFailed",
    "CompiledModule",
    "Directory",
    "EntryPoint",
    "Evaluation",
    "EvaluationResult",
    "Fleet",
    "FleetResult",
    "FleetSnapshot",
    "GameFunctionFailed",
    "Guest",
    "GuestBusy",
    "GuestCancelled",
    "GuestEnv",
    "GuestEnvOptions",
    "GuestError",
    "GuestExit",
    "GuestFailed",
    "GuestSnapshot",
    "GuestTime",
    "GuestTimeout",
    "GuestTrap",
    "HiveError",
    "HiveGrant",
    "Host",
    "InstanceLimitExceeded",
    "LearnerSettings",
    "LearningCurve",
    "Limits",
    "LinkError",
    "Memory",
    "ModuleError",
    "ModuleInfo",
    "ModuleKind",
    "Policy",
    "PolicyFailed",
    "PolicyKind",
    "ProgressFunction",
    "PublishedSite",
    "Recording",
    "ReloadUndone",
    "Reloaded",
    "Replay",
    "ReplayDiffers",
    "ReplayedCall",
    "ReplayedFrame",
    "ReplayedSubmit",
    "Reply",
    "StateRefused",
    "Statistics",
    "Trace",
    "TraceRefused",
    "TrainedPolicy",
    "TrainingEnd",
    "TrainingFailed",
    "TrainingProgress",
    "TrainingResult",
    "Usage",
    "UsageError",
    "WasiGrant",
    "WorkerProgress",
    "evaluate",
    "game_function",
    "publish",
    "record",
    "train",
]

# Imported when first asked for: a command line that only shows its help loads no engine.
_HOMES = {
    "RUN_SECONDS": "arkml.limits",
    "ArkmlError": "arkml.errors",
    "Batch": "arkml.batches",
    "CallingGuest": "arkml.runtime.game_functions",
    "CallingGuests": "arkml.runtime.game_functions",
    "CmdletFailed": "arkml.errors",
    "CompiledModule": "arkml.runtime.compiled_module",
    "Directory": "arkml.runtime.wasi.linking",
    "EntryPoint": "arkml.runtime.module.description",
    "Evaluation": "arkml.training.results",
    "EvaluationResult": "arkml.training.results",
    "Fleet": "arkml.guests.fleet",
    "FleetResult": "arkml.guests.fleet_call",
    "FleetSnapshot": "arkml.guests.snapshots",
    "GameFunctionFailed": "arkml.errors",
    "Guest": "arkml.guests.guest",
    "GuestBusy": "arkml.errors",
    "GuestCancelled": "arkml.errors",
    "GuestEnv": "arkml.envs.core.guest_env",
    "GuestEnvOptions": "arkml.envs.core.env_options",
    "GuestError": "arkml.errors",
    "GuestExit": "arkml.errors",
    "GuestFailed": "arkml.errors",
    "GuestSnapshot": "arkml.guests.snapshots",
    "GuestTime": "arkml.guests.fleet",
    "GuestTimeout": "arkml.errors",
    "GuestTrap": "arkml.errors",
    "HiveError": "arkml.errors",
    "HiveGrant": "arkml.runs.hive_access",
    "Host": "arkml.host",
    "InstanceLimitExceeded": "arkml.errors",
    "LearnerSettings": "arkml.runs.learner_settings",
    "LearningCurve": "arkml.training.results",
    "Limits": "arkml.limits",
    "LinkError": "arkml.errors",
    "Memory": "arkml.runtime.game_functions",
    "ModuleError": "arkml.errors",
    "ModuleInfo": "arkml.runtime.module.description",
    "ModuleKind": "arkml.runtime.module.description",
    "Policy": "arkml.policies.policy",
    "PolicyFailed": "arkml.errors",
    "PolicyKind": "arkml.training.results",
    "ProgressFunction": "arkml.training.results",
    "PublishedSite": "arkml.publishing.publication",
    "Recording": "arkml.training.recording",
    "ReloadUndone": "arkml.errors",
    "Reloaded": "arkml.guests.reloading",
    "Replay": "arkml.replays.replay",
    "ReplayDiffers": "arkml.errors",
    "ReplayedCall": "arkml.guests.trace_player",
    "ReplayedFrame": "arkml.replays.replay",
    "ReplayedSubmit": "arkml.guests.trace_player",
    "Reply": "arkml.guests.call_loop",
    "StateRefused": "arkml.errors",
    "Statistics": "arkml.guests.counts",
    "Trace": "arkml.guests.trace_recorder",
    "TraceRefused": "arkml.errors",
    "TrainedPolicy": "arkml.training.results",
    "TrainingEnd": "arkml.training.results",
    "TrainingFailed": "arkml.training.results",
    "TrainingProgress": "arkml.training.results",
    "TrainingResult": "arkml.training.results",
    "Usage": "arkml.runtime.account",
    "UsageError": "arkml.errors",
    "WasiGrant": "arkml.runtime.wasi.linking",
    "WorkerProgress": "arkml.training.results",
    "evaluate": "arkml.training.evaluation",
    "game_function": "arkml.runtime.game_functions",
    "publish": "arkml.publishing.publication",
    "record": "arkml.training.recording",
    "train": "arkml.training.guest_trainer",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name == "__version__":
        value = import_module("arkml.base.release").RELEASE
    else:
        raise AttributeError(f"module 'arkml' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
