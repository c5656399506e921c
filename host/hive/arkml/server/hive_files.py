"""The files of a hive: read, locked, and kept within its directory."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from arkml.base.files import lock_file, read_plain
from arkml.errors import HiveError, ProtocolError
from arkml.hive.protocol.documents import parse_object


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a plain file. Raises HiveError if there is none."""
    try:
        return parse_object(read_plain(path, follow=False))
    except (OSError, ProtocolError) as error:
        raise HiveError(f"{path} cannot be read: {error}") from error


async def lock_within(path: Path, seconds: float) -> int:
    """
    Lock a file as `lock_file` does, and wait for `seconds` until others leave it.

    Raises HiveError if another hive still holds the lock.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return lock_file(path)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise HiveError(f"{path.parent} is in use by another hive") from None
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
