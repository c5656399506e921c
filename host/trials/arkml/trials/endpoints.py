"""Endpoints, in the module that Cogment's SDK has for them."""

from __future__ import annotations

from arkml.trials.sdk.addresses import Endpoint, ServedEndpoint

__all__ = ["Endpoint", "ServedEndpoint"]
