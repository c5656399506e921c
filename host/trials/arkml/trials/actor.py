"""Actors, in the module that Cogment's SDK has for them."""

from __future__ import annotations

from arkml.trials.sdk.actor_session import ActorSession
from arkml.trials.sdk.specs import ActorClass, ActorClassList

__all__ = ["ActorClass", "ActorClassList", "ActorSession"]
