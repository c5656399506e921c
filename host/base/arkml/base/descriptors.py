"""The open files of a process, of which every connection of a server is one."""

from __future__ import annotations

import contextlib
import resource

_OTHERS = 256
"""Open files of a server besides its connections: logs, pipes and sockets of its programs."""


def room_for_connections(wanted: int = 0) -> int:
    """
    Return how many connections a server has open files for: those `wanted`, or as many as may be.

    The limit of this process is raised for them as far as its user may raise it, so that
    connections that do nothing never take the files that all others need.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    least = wanted + _OTHERS if wanted else hard
    if hard != resource.RLIM_INFINITY:
        least = min(least, hard)
    if soft != resource.RLIM_INFINITY and least > soft:
        with contextlib.suppress(OSError, ValueError):  # the kernel has a limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (least, hard))
            soft = least
    room = max(1, soft - _OTHERS, soft // 2)
    return min(room, wanted) if wanted else room
