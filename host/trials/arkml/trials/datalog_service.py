"""Samples, in the module that Cogment's SDK has for them."""

from __future__ import annotations

from arkml.trials.sdk.datalog_session import LogSample

__all__ = ["LogSample"]
