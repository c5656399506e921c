"""Pre-trial hooks, in the module that Cogment's SDK has for them."""

from __future__ import annotations

from arkml.trials.sdk.parameters import PrehookSession

__all__ = ["PrehookSession"]
