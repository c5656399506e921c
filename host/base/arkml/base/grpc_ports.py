"""The options that all gRPC servers have."""

from __future__ import annotations

from typing import Final

from arkml.base.descriptors import share_for_connections

_METADATA_BYTES = 8 << 10  # also gRPC's default
METADATA_OPTIONS: Final = (
    ("grpc.max_metadata_size", _METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", _METADATA_BYTES),  # by default a bit more would pass
)
"""Options that limit the metadata of a call."""


HANDSHAKE_MS = 10_000
IDLE_MS = 600_000
"""
Milliseconds after which a connection without a call, or not yet HTTP/2, is closed.

gRPC's own limits are longer.
"""

STREAMS = 10_000
"""
Calls that a connection may have at once; the client keeps more of them until others end.

Without a limit gRPC takes calls that are reset at once as fast as they come: those of all other
clients are then cancelled, and memory grows by what waits.
"""


def port_options() -> list[tuple[str, int]]:
    """Return the gRPC options of a server to which strangers may connect."""
    return [
        *METADATA_OPTIONS,
        ("grpc.max_concurrent_streams", STREAMS),
        ("grpc.so_reuseport", 0),  # a port in use is an error, not a second server
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        ("grpc.max_connection_idle_ms", IDLE_MS),
        ("grpc.max_allowed_incoming_connections", share_for_connections()),
    ]
