"""The name of this machine, as hives and their users see it."""

from __future__ import annotations

import socket

from arkml.hive.protocol.run_origin import MAX_HOST


def host_name() -> str:
    """Return the name of this machine, cut off at the length that a hive accepts."""
    return socket.gethostname().encode(errors="replace").decode()[:MAX_HOST]
