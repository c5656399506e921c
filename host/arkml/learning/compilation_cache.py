"""The cache on disk of programs that JAX has compiled, shared by the learners of one user."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import stat
import zlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

MOST_BYTES = 64 << 20
"""Bytes of the entries that a new learner finds; the oldest beyond them are removed."""

_ENTRIES = "*-cache"
_ZLIB = b"\x78"  # the first byte of an entry, unless JAX finds zstandard


def open_cache(jax: Any) -> Path | None:
    """
    Have JAX keep its compiled programs, and return the directory of the entries.

    All are kept, also those that compile fast. Without a directory that only this user can write
    to, nothing is kept: the reason is logged as a warning, and None is returned.
    """
    directory = cache_directory()
    try:
        _make_private(directory.parent)
        _make_private(directory)
        clean(directory)
    except OSError as error:
        log.warning("compiled programs are not kept: %s", error)
        return None
    jax.config.update("jax_compilation_cache_dir", str(directory))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return directory


def cache_directory() -> Path:
    """
    Return the directory of the entries for these versions and this processor.

    Machine code from another processor may crash, and JAX's own key does not have its features. The
    directory lies below $XDG_CACHE_HOME or ~/.cache.
    """
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    versions = [version(name) for name in ("jax", "jaxlib", "arkml")]
    key = "\n".join([*versions, platform.machine(), _processor()])
    return Path(base) / "arkml" / f"jax-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def clean(directory: Path) -> None:
    """
    Remove entries that were not written to their ends, and the oldest ones beyond the bound.

    JAX writes entries in place and never again, so a process that is killed leaves a part that
    would be read in vain by each learner. Raises OSError if the directory cannot be read.
    """
    entries = []
    for path in directory.glob(_ENTRIES):
        with contextlib.suppress(FileNotFoundError):  # removed by another learner
            data = path.read_bytes()
            if not _is_whole(data):
                path.unlink()
            else:
                entries.append((path.stat().st_mtime, len(data), path))
    total = 0
    for _, size, path in sorted(entries, reverse=True):
        total += size
        if total > MOST_BYTES:
            path.unlink(missing_ok=True)


def _is_whole(data: bytes) -> bool:
    if not data.startswith(_ZLIB):
        return bool(data)
    try:
        zlib.decompress(data)
    except zlib.error:
        return False
    return True


def _make_private(directory: Path) -> None:
    """Make a directory for this user alone. Raises OSError if others may write to it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{directory} is not a directory")
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(
            f"others may write to {directory}, whose programs would be run: remove it, or set"
            " XDG_CACHE_HOME"
        )


def _processor() -> str:
    """Return the model and the features of the processor, as far as the system tells them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(names)}))
