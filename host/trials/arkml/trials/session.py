"""Sessions and their events, under the module name of Cogment's SDK."""

from __future__ import annotations

from arkml.trials.sdk.event_session import Session
from arkml.trials.sdk.session_events import (
    ActorStatus,
    EventType,
    RecvAction,
    RecvEvent,
    RecvMessage,
    RecvObservation,
    RecvReward,
    RecvRewardSource,
)
from arkml.trials.sdk.trial_info import ActorInfo

__all__ = [
    "ActorInfo",
    "ActorStatus",
    "EventType",
    "RecvAction",
    "RecvEvent",
    "RecvMessage",
    "RecvObservation",
    "RecvReward",
    "RecvRewardSource",
    "Session",
]
