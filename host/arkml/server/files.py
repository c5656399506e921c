"""The files of a hive: read, locked, and kept within its directory."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from pathlib import Path
from typing import Any

from arkml.errors import HiveError, ProtocolError
from arkml.hive.protocol.documents import parse_object

DOCUMENT_NAME = "run.json"
"""The file with the state of a run, in its directory."""


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises HiveError if there is none."""
    try:
        return parse_object(path.read_bytes())
    except (OSError, ProtocolError) as error:
        raise HiveError(f"{path} cannot be read: {error}") from error


def lock(path: Path) -> int:
    """
    Lock a file exclusively, for as long as the returned file descriptor or a copy of it is open.

    Raises HiveError if another process holds the lock.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise HiveError(f"{path.parent} is in use by another hive") from None
    return descriptor


async def lock_within(path: Path, seconds: float) -> int:
    """Lock a file as `lock` does, and wait for `seconds` until others leave it."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return lock(path)
        except HiveError:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.05)


def inside(directory: Path, name: object) -> Path:
    """Return the path of a file that must lie within `directory`. Raises HiveError."""
    if not isinstance(name, str) or not name or "\0" in name:
        raise HiveError(f"{name!r} is not a file within {directory}")
    root = directory.resolve()
    path = (root / name).resolve()
    if root not in path.parents:
        raise HiveError(f"{name!r} is not a file within {directory}")
    return path
