"""The context, in the module that Cogment's SDK has for them."""

from __future__ import annotations

from arkml.trials.sdk.context import Context

__all__ = ["Context"]
