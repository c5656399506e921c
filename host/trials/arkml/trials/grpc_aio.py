"""
Channels and servers of gRPC for asyncio that cannot block a finalizer.

All grpc.aio objects share one thread, which the finalizer of the last object ends and joins. A
finalizer can run in the middle of anything, for example a frame of a game, and the thread does not
end while an operation of a closed event loop is pending, so the process would hang. The first
object made here therefore keeps the thread alive until the process ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import grpc.aio

from arkml.base.grpc_ports import port_options

_Options = Sequence[tuple[str, Any]]


def insecure_channel(authority: str, options: _Options) -> grpc.aio.Channel:
    """Return a channel to HOST:PORT without TLS."""
    _keep_thread()
    return grpc.aio.insecure_channel(authority, options=options)


def new_server(options: _Options) -> grpc.aio.Server:
    """
    Return a gRPC server without any ports, with `options` besides the options of every server.
    """
    _keep_thread()
    return grpc.aio.server(options=[*port_options(), *options])


@cache
def _keep_thread() -> None:
    grpc.aio.init_grpc_aio()
