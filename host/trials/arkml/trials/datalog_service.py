"""Samples of a datalog, under the module name of Cogment's SDK."""

from __future__ import annotations

from arkml.trials.sdk.datalog_session import LogSample

__all__ = ["LogSample"]
