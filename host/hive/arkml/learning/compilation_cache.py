"""The cache on disk of programs compiled by JAX, shared by all learners of one user."""

from __future__ import annotations

import contextlib
import hashlib
import platform
import stat
import sys
import zlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

from arkml.base.loggers import SafeLogger
from arkml.base.release import RELEASE
from arkml.base.user_cache import cache_base, make_private, processor

log = SafeLogger(__name__)

MOST_BYTES = 64 << 20
"""Bytes of the entries that a new learner finds; the oldest beyond them are removed."""

_ENTRIES = "*-cache"
_ZLIB = b"\x78"  # the first byte of an entry that was made where JAX found no Zstandard
_ZSTANDARD = b"\x28\xb5\x2f\xfd"


def open_cache(jax: Any, threads: str = "") -> Path | None:
    """
    Make JAX store its compiled programs for this number of threads, and return their directory.

    All programs are stored, also programs that compile fast (decision 16). In a directory that
    cannot be written, such as a read-only home, existing entries are used. Without a directory that
    only this user can write to, nothing is stored: the reason is logged as a warning, and None is
    returned.
    """
    try:
        directory = cache_directory(threads)
        make_private(directory.parent)
        make_private(directory)
        clean(directory)
    except (OSError, RuntimeError) as error:  # the second: a user without a home
        log.warning("compiled programs are not kept: %s", error)
        return None
    jax.config.update("jax_compilation_cache_dir", str(directory))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return directory


def cache_directory(threads: str = "") -> Path:
    """
    Return the directory of entries for these versions, this processor and number of threads.

    Programs are divided among threads when they are compiled. Machine code from another processor
    may crash, and JAX's own key does not have its features. Another version of Python may not be
    able to decompress the entries. The directory lies below $XDG_CACHE_HOME or ~/.cache.
    """
    versions = [version("jax"), version("jaxlib"), RELEASE]
    python = ".".join(map(str, sys.version_info[:2]))
    key = "\n".join([*versions, python, platform.machine(), processor(), threads])
    return cache_base() / f"jax-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def clean(directory: Path) -> None:
    """
    Remove incomplete entries of the cache, and the oldest ones beyond its limit.

    JAX writes an entry in place and only once, so a process that is killed leaves a part of an
    entry, which every learner would try to read. An entry that was found complete is made
    read-only, and not read again here. A file that cannot be removed stays. Raises OSError if the
    directory cannot be read.
    """
    entries = []
    for path in directory.glob(_ENTRIES):
        with contextlib.suppress(OSError):  # removed by another learner, or a read-only disk
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                path.unlink()
                continue
            if status.st_mode & stat.S_IWUSR:
                if not _is_whole(path.read_bytes()):
                    path.unlink()
                    continue
                path.chmod(stat.S_IRUSR)
            entries.append((status.st_mtime, status.st_size, path))
    total = 0
    for _, size, path in sorted(entries, reverse=True):
        total += size
        if total > MOST_BYTES:
            with contextlib.suppress(OSError):
                path.unlink()


def _is_whole(data: bytes) -> bool:
    if data.startswith(_ZSTANDARD):
        import zstandard  # which the tests of other packages lack

        try:
            zstandard.ZstdDecompressor().decompress(data)
        except zstandard.ZstdError:
            return False
        return True
    if not data.startswith(_ZLIB):
        return bool(data)
    try:
        zlib.decompress(data)
    except zlib.error:
        return False
    return True
