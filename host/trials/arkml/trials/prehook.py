"""Pre-trial hooks, under the module name of Cogment's SDK."""

from __future__ import annotations

from arkml.trials.sdk.trial_parameters import PrehookSession

__all__ = ["PrehookSession"]
