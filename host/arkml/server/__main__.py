"""The process of a hive: `python -m arkml.server --data DIR`, or `--embedded` in a host."""

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

from arkml.errors import HiveError, UsageError
from arkml.hive.protocol.runs import DEFAULT_PORT
from arkml.server.options import Patience, ServeOptions
from arkml.server.service import serve

_TOKEN = "ARKML_HIVE_TOKEN"

_NICE = 5  # the frames of its host come before


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Serve until SIGTERM. Returns the exit status. Prints a line of JSON once it answers: host, port.

    With `--embedded` everything else comes as a line of JSON on standard input, whose end is the
    end of the hive.
    """
    parser = argparse.ArgumentParser(prog="python -m arkml.server", description=__doc__)
    parser.add_argument("--embedded", action="store_true", help="read options from standard input")
    parser.add_argument("--data", type=Path, help="the directory of the hive")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME")
    found = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s hive: %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    if found.embedded:
        return _embedded(json.loads(_line()))
    if found.data is None:
        parser.error("--data is missing")
    token = os.environ.get(_TOKEN, "")
    names = tuple(found.allow_host)
    return _serve(ServeOptions(found.data, found.host, found.port, token, names), None)


def _embedded(told: Mapping[str, Any]) -> int:
    values = dict(told)
    parent, temporary = values.pop("parent"), values.pop("temporary")
    os.nice(_NICE)
    options = options_from(values)
    try:
        return _serve(options, parent)
    finally:
        # A host that is there removes the directory itself, when it wants the hive no more.
        if temporary and os.getppid() != parent:
            shutil.rmtree(options.data, ignore_errors=True)


def options_from(values: Mapping[str, Any]) -> ServeOptions:
    """Options as JSON has them. Raises UsageError."""
    found = dict(values)
    try:
        found["data"] = Path(found["data"])
        found["patience"] = Patience(**found.get("patience", {}))
        for name in ("learner", "allow_hosts"):
            if name in found:
                found[name] = tuple(found[name])
        return ServeOptions(**found)
    except (KeyError, TypeError) as error:
        raise UsageError(f"no options of a hive: {error}") from error


def _serve(options: ServeOptions, parent: int | None) -> int:
    try:
        serve(options, _announce, parent=parent)
    except (HiveError, UsageError, OSError, sqlite3.Error) as error:
        _say({"error": str(error)})
        return 1
    return 0


def _announce(host: str, port: int) -> None:
    _say({"host": host, "port": port})


def _say(told: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def _line() -> bytes:
    """The first line of standard input; what follows is left there."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            break
        line += byte
    return bytes(line)


if __name__ == "__main__":
    sys.exit(main())
