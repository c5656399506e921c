"""Environments, in the module that Cogment's SDK has for them."""

from __future__ import annotations

from arkml.trials.sdk.environment_session import EnvironmentSession

__all__ = ["EnvironmentSession"]
