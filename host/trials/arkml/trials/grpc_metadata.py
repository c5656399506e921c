"""Metadata, in the module that Cogment's SDK has for them."""

from __future__ import annotations

from arkml.trials.sdk.grpc_metadata import GrpcMetadata

__all__ = ["GrpcMetadata"]
