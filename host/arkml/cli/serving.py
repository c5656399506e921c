"""A hive in the foreground, until Ctrl-C."""

from __future__ import annotations

import sys
from pathlib import Path

from arkml.cli.exits import GOOD


def serve_hive(
    host: str,
    port: int,
    data: Path,
    *,
    token: str | None,
    allow_hosts: tuple[str, ...],
    device: str,
    idle_stop: float,
) -> int:
    """Serve until SIGINT or SIGTERM, then let the learners save what they have."""
    from arkml.server.options import Patience, ServeOptions
    from arkml.server.serve import serve

    options = ServeOptions(
        data=data,
        host=host,
        port=port,
        token=token or "",
        allow_hosts=allow_hosts,
        device=device,
        patience=Patience(idle_stop=idle_stop),
    )

    def announce(host: str, port: int) -> None:
        secret = "with the token" if token else "without a token"
        sys.stderr.write(f"hive: http://{host}:{port} {secret}, runs in {data.resolve()}\n")
        sys.stderr.flush()

    serve(options, announce)
    return GOOD
