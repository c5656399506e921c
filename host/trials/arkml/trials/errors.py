"""Errors, under the module name of Cogment's SDK."""

from __future__ import annotations

from arkml.trials.core.error import CogmentError

__all__ = ["CogmentError"]
