"""Controllers, under the module name of Cogment's SDK."""

from __future__ import annotations

from arkml.trials.sdk.controller import Controller
from arkml.trials.sdk.trial_info import TrialInfo, TrialState

__all__ = ["Controller", "TrialInfo", "TrialState"]
