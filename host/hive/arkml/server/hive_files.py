"""The files of a hive: read, locked, and kept within its directory."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, TypeVar

from arkml.base.files import lock_file, read_plain
from arkml.base.loggers import SafeLogger
from arkml.errors import HiveError, ProtocolError
from arkml.hive.protocol.documents import parse_object
from arkml.hive.protocol.wire import WireStruct

_log = SafeLogger(__name__)

_Kept = TypeVar("_Kept", bound=WireStruct)

_MOST_BYTES = 1 << 20
"""The longest file beside the document of a run: labels, all of whose letters are escaped."""


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a plain file. Raises HiveError if there is none."""
    try:
        return parse_object(read_plain(path, follow=False))
    except (OSError, ProtocolError) as error:
        raise HiveError(f"{path} cannot be read: {error}") from error


def read_kept(path: Path, kind: type[_Kept]) -> _Kept | None:
    """
    Return the object in a file that a run can do without, None if there is no such file.

    A file that is damaged, too long or not plain counts as missing, and is logged.
    """
    try:
        return kind.from_bytes(read_plain(path, follow=False, most=_MOST_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, ProtocolError) as error:
        _log.error("%s is left out, as it cannot be read: %s", path, error)
        return None


async def lock_within(path: Path, seconds: float) -> int:
    """
    Lock a file as `lock_file` does, waiting at most `seconds` while another process holds it.

    Returns the descriptor of the lock. Raises HiveError if another hive still holds it.
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
