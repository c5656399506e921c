"""Metadata of calls, under the module name of Cogment's SDK."""

from __future__ import annotations

from arkml.trials.sdk.call_metadata import GrpcMetadata

__all__ = ["GrpcMetadata"]
