"""
Channels and servers of gRPC for asyncio, in a process where no finalizer waits for its thread.

All of them share a thread of grpcio's, which the finalizer of the last one ends and joins. The
garbage collector runs finalizers in the middle of anything, a frame of a game as well, and that
thread does not end while an operation of an event loop that is gone is pending: the process stood
still. So the first one that is made here keeps that thread until the process ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import grpc.aio

_Options = Sequence[tuple[str, Any]]


def insecure_channel(authority: str, options: _Options) -> grpc.aio.Channel:
    """Return a channel to HOST:PORT without TLS."""
    _keep_thread()
    return grpc.aio.insecure_channel(authority, options=options)


def new_server(options: _Options) -> grpc.aio.Server:
    """Return a server that listens nowhere yet."""
    _keep_thread()
    return grpc.aio.server(options=options)


@cache
def _keep_thread() -> None:
    grpc.aio.init_grpc_aio()
