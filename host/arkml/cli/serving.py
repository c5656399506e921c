"""A hive in the foreground, until Ctrl-C."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from arkml.cli.exits import GOOD
from arkml.cli.launch import TOKEN, require_hive
from arkml.cli.logs import LogOptions
from arkml.errors import UsageError


@dataclass(frozen=True, slots=True)
class Serve:
    """The options of `arkml hive serve`."""

    host: str
    port: int
    data: Path
    device: str
    idle_stop: float
    allow_hosts: tuple[str, ...]
    debug: bool


def serve_hive(wish: Serve) -> int:
    """
    Serve until SIGINT or SIGTERM, then let the learners save what they have.

    Raises UsageError and HiveError if that cannot begin.
    """
    token = os.environ.get(TOKEN)
    _check(wish, token)
    require_hive()
    LogOptions(debug=wish.debug).start()
    from arkml.server.options import Patience, ServeOptions
    from arkml.server.service import serve

    options = ServeOptions(
        data=wish.data,
        host=wish.host,
        port=wish.port,
        token=token or "",
        allow_hosts=wish.allow_hosts,
        device=wish.device,
        patience=Patience(idle_stop=wish.idle_stop),
    )

    def announce(host: str, port: int) -> None:
        secret = "with the token" if token else "without a token"
        sys.stderr.write(f"hive: http://{host}:{port} {secret}, runs in {wish.data.resolve()}\n")
        sys.stderr.flush()

    serve(options, announce)
    return GOOD


def _check(wish: Serve, token: str | None) -> None:
    """Raise UsageError for options that make no sense."""
    from arkml.hive.protocol.settings import DEVICES

    if wish.device not in DEVICES:
        raise UsageError(f"--device {wish.device}: it takes one of {', '.join(DEVICES)}")
    if not wish.idle_stop > 0:
        raise UsageError(f"--idle-stop {wish.idle_stop:g}: it takes a number of seconds above 0")
    if token is None and wish.host not in ("127.0.0.1", "localhost", "::1"):
        raise UsageError(
            f"--host {wish.host} is open to others: set {TOKEN} to the token they need"
        )
