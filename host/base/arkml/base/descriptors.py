"""Limits on file descriptors of a process, of which each connection of a server takes one."""

from __future__ import annotations

import contextlib
import resource

_OTHERS = 256
"""Descriptors of a server besides connections, such as logs, pipes and sockets of its programs."""

_UNLIMITED = 1 << 20
"""Descriptors that are reckoned with where there is no limit."""


def room_for_connections(wanted: int = 0) -> int:
    """
    Return how many connections fit into the limit of file descriptors, at most `wanted`.

    The process's limit is raised as far as its user may, so that idle connections never take the
    descriptors that the server itself needs.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    least = wanted + _OTHERS if wanted else hard
    if hard != resource.RLIM_INFINITY:
        least = min(least, hard)
    if soft != resource.RLIM_INFINITY and least > soft:
        with contextlib.suppress(OSError, ValueError):  # the kernel may have a lower limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (least, hard))
            soft = least
    room = max(1, soft - _OTHERS, soft // 2)
    return min(room, wanted) if wanted else room


def share_for_connections() -> int:
    """
    Return how many connections one of several ports may have: a quarter of the descriptors.

    A server of trials has two ports of gRPC and one for browsers, and needs the rest itself.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, (_UNLIMITED if soft == resource.RLIM_INFINITY else soft) // 4)
