"""Environments, under the module name of Cogment's SDK."""

from __future__ import annotations

from arkml.trials.sdk.environment_session import EnvironmentSession

__all__ = ["EnvironmentSession"]
