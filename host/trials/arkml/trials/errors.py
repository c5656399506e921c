"""The error, in the module that Cogment's SDK has for them."""

from __future__ import annotations

from arkml.trials.core.error import CogmentError

__all__ = ["CogmentError"]
