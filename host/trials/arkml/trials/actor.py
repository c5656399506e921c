"""Actors, under the module name of Cogment's SDK."""

from __future__ import annotations

from arkml.trials.sdk.actor_session import ActorSession
from arkml.trials.sdk.message_specs import ActorClass, ActorClassList

__all__ = ["ActorClass", "ActorClassList", "ActorSession"]
