"""The process of a hive: `python -m arkml.server --data DIR`, or `--embedded` for a host."""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from arkml.base.ending import leaving_at_the_end
from arkml.base.processors import come_after_parent
from arkml.errors import HiveError, UsageError
from arkml.hive.notifier import NotifyOptions
from arkml.hive.protocol.runs import DEFAULT_PORT
from arkml.server.hive_service import serve
from arkml.server.serve_options import (
    ServeOptions,
    ServerLimits,
    Timeouts,
    WatchOptions,
    WorkerOptions,
)

_TOKEN = "ARKML_HIVE_TOKEN"

_STEPS = 5  # of niceness, so that the frames of its host are not late


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Serve a hive until SIGTERM. Returns the exit status.

    Prints a line of JSON with host and port once the hive answers. With `--embedded` all options
    are read as a line of JSON from standard input; the hive ends when that is closed.
    """
    parser = argparse.ArgumentParser(prog="python -m arkml.server", description=__doc__)
    parser.add_argument("--embedded", action="store_true", help="read options from standard input")
    parser.add_argument("--data", type=Path, help="the directory of the hive")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s hive: %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    if options.embedded:
        return _serve_embedded(json.loads(_read_line()))
    if options.data is None:
        parser.error("--data is missing")
    token = os.environ.pop(_TOKEN, "")  # so that learners and workers do not inherit it
    names = tuple(options.allow_host)
    return _serve(ServeOptions(options.data, options.host, options.port, token, names), None)


def _serve_embedded(values: Mapping[str, Any]) -> int:
    fields = dict(values)
    parent, temporary = fields.pop("parent"), fields.pop("temporary")
    come_after_parent(_STEPS)
    options = _parse_options(fields)
    try:
        return _serve(options, parent)
    finally:
        # A host that is alive removes the directory itself, once it has closed the hive.
        if temporary and os.getppid() != parent:
            shutil.rmtree(options.data, ignore_errors=True)


def _parse_options(values: Mapping[str, Any]) -> ServeOptions:
    """Return the options in a JSON object. Raises UsageError."""
    fields = dict(values)
    try:
        fields["data"] = Path(fields["data"])
        fields["timeouts"] = Timeouts(**fields.get("timeouts", {}))
        fields["workers"] = WorkerOptions(**fields.get("workers", {}))
        fields["watches"] = WatchOptions(**fields.get("watches", {}))
        fields["limits"] = ServerLimits(**fields.get("limits", {}))
        fields["notify"] = _parse_notify(**fields.get("notify", {}))
        for name in ("learner", "allow_hosts", "trusted_proxies"):
            if name in fields:
                fields[name] = tuple(fields[name])
        for name in ("tls_cert", "tls_key"):
            if fields.get(name) is not None:
                fields[name] = Path(fields[name])
        return ServeOptions(**fields)
    except (KeyError, TypeError) as error:
        raise UsageError(f"the options of a hive are invalid: {error}") from error


def _parse_notify(**values: Any) -> NotifyOptions:
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return NotifyOptions(**{**values, **lists})


def _serve(options: ServeOptions, parent: int | None) -> int:
    try:
        serve(options, _announce if parent is None else _announce_with_login, parent=parent)
    except (HiveError, UsageError, OSError, sqlite3.Error) as error:
        _print_json({"error": str(error)})
        return 1
    return 0


def _announce(host: str, port: int, _: str) -> None:
    _print_json({"host": host, "port": port})


def _announce_with_login(host: str, port: int, login: str) -> None:
    _print_json({"host": host, "port": port, "login": login})


def _print_json(values: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def _read_line() -> bytes:
    """Return the first line of standard input; the rest is left unread."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            break
        line += byte
    return bytes(line)


if __name__ == "__main__":
    with leaving_at_the_end():
        sys.exit(main())
