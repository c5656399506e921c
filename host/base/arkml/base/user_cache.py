"""The user's cache directory, and the processor that cached machine code depends on."""

from __future__ import annotations

import os
import platform
import stat
from functools import cache
from pathlib import Path

_FEATURES = ("model name", "flags", "Features", "CPU part")


def cache_base() -> Path:
    """Return this package's cache directory in $XDG_CACHE_HOME, or `~/.cache/arkml`."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))  # which is ignored if it is not absolute
    return (given if given.is_absolute() else Path.home() / ".cache") / "arkml"


def make_private(directory: Path) -> None:
    """Create a directory for this user alone. Raises OSError if others may write to it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{directory} is not a directory")
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(
            f"others may write to {directory}, whose programs would be run: remove it, or set"
            " XDG_CACHE_HOME"
        )


@cache
def processor() -> str:
    """Return the model and features of the processor, as far as the system reports them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(_FEATURES)}))
