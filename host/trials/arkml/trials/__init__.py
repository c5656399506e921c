"""
Trials in which environments, policies and people act together, tick by tick.

The protocol is Cogment's. A Context registers environments and actors, a Server runs trials of
them, and a Controller starts and watches trials.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from arkml.base.release import RELEASE

if TYPE_CHECKING:
    from arkml.trials.core.error import ActorTaken, CogmentError, TrialError
    from arkml.trials.sdk.actor_parameters import ActorParameters
    from arkml.trials.sdk.actor_session import ActorSession
    from arkml.trials.sdk.addresses import Endpoint, ServedEndpoint
    from arkml.trials.sdk.call_metadata import GrpcMetadata
    from arkml.trials.sdk.controller import Controller
    from arkml.trials.sdk.datalog_session import DatalogSession, LogSample
    from arkml.trials.sdk.environment_session import EnvironmentSession
    from arkml.trials.sdk.event_session import Session
    from arkml.trials.sdk.message_specs import ActorClass, ActorClassList, CogSettings
    from arkml.trials.sdk.program_context import Context
    from arkml.trials.sdk.program_logger import make_logger
    from arkml.trials.sdk.session_events import (
        ActorStatus,
        EventType,
        RecvAction,
        RecvEvent,
        RecvMessage,
        RecvObservation,
        RecvReward,
        RecvRewardSource,
        Reward,
        RewardSource,
    )
    from arkml.trials.sdk.trial_info import ActorInfo, TrialInfo, TrialState
    from arkml.trials.sdk.trial_parameters import PrehookSession, TrialParameters
    from arkml.trials.server.server import Server
    from arkml.trials.server.server_options import TrialsOptions

__all__ = [
    "ActorClass",
    "ActorClassList",
    "ActorInfo",
    "ActorParameters",
    "ActorSession",
    "ActorStatus",
    "ActorTaken",
    "CogSettings",
    "CogmentError",
    "Context",
    "Controller",
    "DatalogSession",
    "Endpoint",
    "EnvironmentSession",
    "EventType",
    "GrpcMetadata",
    "LogSample",
    "PrehookSession",
    "RecvAction",
    "RecvEvent",
    "RecvMessage",
    "RecvObservation",
    "RecvReward",
    "RecvRewardSource",
    "Reward",
    "RewardSource",
    "ServedEndpoint",
    "Server",
    "Session",
    "TrialError",
    "TrialInfo",
    "TrialParameters",
    "TrialState",
    "TrialsOptions",
    "make_logger",
]

__version__: str = RELEASE

# Imported on first access, so that the core and its messages can be used without gRPC.
_HOMES = {
    "ActorClass": "arkml.trials.sdk.message_specs",
    "ActorClassList": "arkml.trials.sdk.message_specs",
    "ActorInfo": "arkml.trials.sdk.trial_info",
    "ActorParameters": "arkml.trials.sdk.actor_parameters",
    "ActorSession": "arkml.trials.sdk.actor_session",
    "ActorStatus": "arkml.trials.sdk.session_events",
    "ActorTaken": "arkml.trials.core.error",
    "CogSettings": "arkml.trials.sdk.message_specs",
    "CogmentError": "arkml.trials.core.error",
    "Context": "arkml.trials.sdk.program_context",
    "Controller": "arkml.trials.sdk.controller",
    "DatalogSession": "arkml.trials.sdk.datalog_session",
    "Endpoint": "arkml.trials.sdk.addresses",
    "EnvironmentSession": "arkml.trials.sdk.environment_session",
    "EventType": "arkml.trials.sdk.session_events",
    "GrpcMetadata": "arkml.trials.sdk.call_metadata",
    "LogSample": "arkml.trials.sdk.datalog_session",
    "PrehookSession": "arkml.trials.sdk.trial_parameters",
    "RecvAction": "arkml.trials.sdk.session_events",
    "RecvEvent": "arkml.trials.sdk.session_events",
    "RecvMessage": "arkml.trials.sdk.session_events",
    "RecvObservation": "arkml.trials.sdk.session_events",
    "RecvReward": "arkml.trials.sdk.session_events",
    "RecvRewardSource": "arkml.trials.sdk.session_events",
    "Reward": "arkml.trials.sdk.session_events",
    "RewardSource": "arkml.trials.sdk.session_events",
    "ServedEndpoint": "arkml.trials.sdk.addresses",
    "Server": "arkml.trials.server.server",
    "Session": "arkml.trials.sdk.event_session",
    "TrialError": "arkml.trials.core.error",
    "TrialInfo": "arkml.trials.sdk.trial_info",
    "TrialParameters": "arkml.trials.sdk.trial_parameters",
    "TrialState": "arkml.trials.sdk.trial_info",
    "TrialsOptions": "arkml.trials.server.server_options",
    "make_logger": "arkml.trials.sdk.program_logger",
}


_MODULES = (
    "actor",
    "context",
    "control",
    "datalog_service",
    "endpoints",
    "environment",
    "errors",
    "grpc_metadata",
    "parameters",
    "prehook",
    "session",
)
"""Modules of Cogment's SDK, which programs import by these names."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"arkml.trials.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'arkml.trials' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
