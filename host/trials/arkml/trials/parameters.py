"""Parameters, under the module name of Cogment's SDK."""

from __future__ import annotations

from arkml.trials.sdk.actor_parameters import ActorParameters
from arkml.trials.sdk.trial_parameters import TrialParameters

__all__ = ["ActorParameters", "TrialParameters"]
