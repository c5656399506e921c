"""Parameters, in the module that Cogment's SDK has for them."""

from __future__ import annotations

from arkml.trials.sdk.actor_parameters import ActorParameters
from arkml.trials.sdk.parameters import TrialParameters

__all__ = ["ActorParameters", "TrialParameters"]
