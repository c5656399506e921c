"""Endpoints, under the module name of Cogment's SDK."""

from __future__ import annotations

from arkml.trials.sdk.addresses import Endpoint, ServedEndpoint

__all__ = ["Endpoint", "ServedEndpoint"]
