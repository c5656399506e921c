"""
The cache of machine code on disk, keyed by the module and everything else that matters.

An entry is code that this process will run. So entries are authenticated with a key of the user in
another directory, both directories belong to the user alone, and exactly the authenticated bytes
are loaded. An entry in doubt counts as missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import os
import platform
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from arkml.base.loggers import SafeLogger, notice
from arkml.base.user_cache import cache_base, processor
from arkml.runtime.bindings import WASMTIME
from arkml.runtime.compilation.compiler import DETAILS, settings

logger = SafeLogger(__name__)

VARIABLE = "ARKML_CACHE"
"""Environment variable with a directory for the entries, or `off`."""

MOST_BYTES = 512 << 20
"""The most bytes of all entries; above that the least recently used are removed."""

_MOST_ENTRIES = 4_096
_CLEAN_EVERY = 16 << 20  # bytes that a process has written; an entry counts for _LEAST of them
_LEAST = 256 << 10

_FORMAT = "1"  # of the entries and of the checks that a module passed before it was compiled
_OFF = "off"
_KEY, _KEY_BYTES = "cache.key", 32
_MAC_BYTES = 32
_TEMPORARY = "."  # the first letter of names of files that are not whole
_STALE = 3_600.0  # seconds after which such a file is one of a process that was killed
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_IS_POSIX = hasattr(os, "O_DIRECTORY") and hasattr(os, "geteuid")


class _NotPrivate(Exception):
    """A file or directory that another user could have written."""


def entry_name(source: bytes, stack: int) -> str:
    """Return the name of the cache entry of a module compiled for `stack` bytes of stack."""
    return code_name(hashlib.sha256(source).hexdigest(), stack)


def code_name(digest: str, stack: int) -> str:
    """Return the name of the cache entry of the module with this SHA-256, as `entry_name` does."""
    parts = (
        _FORMAT,
        WASMTIME,
        sys.platform,
        platform.machine(),
        processor(),
        repr(sorted(settings(stack).items())),
        os.environ.get(DETAILS, ""),  # what wasmtime keeps of DWARF depends on it
        digest,
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def load(name: str) -> bytes | None:
    """Return the content of a cache entry, or None if it is missing or not surely this user's."""
    path = _entries()
    if path is None:
        return None
    with (
        _quiet(),
        _directory(path) as directory,
        _directory(_keys()) as keys,
        _opened(name, directory) as file,
    ):
        mac = os.read(file, _MAC_BYTES)
        code = os.read(file, os.fstat(file).st_size)
        if hmac.compare_digest(mac, _mac(_key(keys), name, code)):
            with contextlib.suppress(OSError):  # on a read-only disk nothing is removed, either
                os.utime(file)
            return code
    return None


def save(name: str, code: bytes) -> None:
    """Store machine code as a cache entry, if that is possible."""
    path = _entries()
    if path is None or len(code) > MOST_BYTES:
        return
    with _quiet(), _directory(path) as directory, _directory(_keys()) as keys:
        content = _mac(_key(keys), name, code) + code
        with _temporary(directory, content) as temporary:
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        if _is_due(len(content)):
            _clean(directory)


@contextmanager
def _quiet() -> Iterator[None]:
    """Turn errors of the disk into one notice: nothing is kept."""
    try:
        yield
    except FileNotFoundError:
        pass
    except _NotPrivate as error:
        notice(logger, logging.WARNING, f"compiled modules are not kept: {error}")
    except (OSError, RuntimeError) as error:  # the second: a user without a home
        notice(logger, logging.INFO, f"compiled modules are not kept: {error}")


def _entries() -> Path | None:
    given = os.environ.get(VARIABLE)
    if given == _OFF or not _IS_POSIX:
        return None
    try:
        return Path(given).expanduser() if given else cache_base() / "modules"
    except RuntimeError:  # a user without a home, or `~` of none
        return None


def _keys() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "arkml"


@contextmanager
def _directory(path: Path) -> Iterator[int]:
    """Open a directory of this user alone, which is made if it does not exist."""
    try:
        file = os.open(path, _READ | os.O_DIRECTORY)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        file = os.open(path, _READ | os.O_DIRECTORY)
    try:
        _check(file, str(path))
        yield file
    finally:
        os.close(file)


def _check(file: int, name: str) -> os.stat_result:
    found = os.fstat(file)
    if found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
        raise _NotPrivate(
            f"{name} is not private to this user (mode 0700 of a directory, 0600 of a file): remove"
            f" it, or set {VARIABLE} to another directory or to {_OFF!r}"
        )
    return found


@contextmanager
def _opened(name: str, directory: int) -> Iterator[int]:
    """Open a file of this user alone, not through a link. Raises OSError and _NotPrivate."""
    file = os.open(name, _READ | os.O_NONBLOCK, dir_fd=directory)
    try:
        found = _check(file, name)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES + _MAC_BYTES:
            raise FileNotFoundError(name)
        yield file
    finally:
        os.close(file)


def _key(keys: int) -> bytes:
    """Return the key of this user, which is made on first use."""
    with contextlib.suppress(FileNotFoundError):
        return _read_key(keys)
    with (
        _temporary(keys, secrets.token_bytes(_KEY_BYTES)) as temporary,
        contextlib.suppress(FileExistsError),  # another process was first
    ):
        os.link(temporary, _KEY, src_dir_fd=keys, dst_dir_fd=keys, follow_symlinks=False)
    return _read_key(keys)


def _read_key(keys: int) -> bytes:
    with _opened(_KEY, keys) as file:
        key = os.read(file, _KEY_BYTES + 1)
    if len(key) != _KEY_BYTES:
        raise _NotPrivate(f"{_KEY} has {len(key)} bytes, not {_KEY_BYTES}: remove it")
    return key


def _mac(key: bytes, name: str, code: bytes) -> bytes:
    # With the name, so that a valid entry cannot be renamed into the place of another.
    mac = hmac.new(key, name.encode(), hashlib.sha256)
    mac.update(code)
    return mac.digest()


@contextmanager
def _temporary(directory: int, content: bytes) -> Iterator[str]:
    """Write a file under a name of its own, and remove it at the end unless it was renamed."""
    name = f"{_TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    file = os.open(name, flags, 0o600, dir_fd=directory)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(content)
        yield name
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)


class _Written:
    """The bytes that this process has written since the last cleaning; the first is due at once."""

    since = _CLEAN_EVERY


def _is_due(size: int) -> bool:
    """Return whether to clean after an entry of this size: scanning all entries takes long."""
    _Written.since += max(size, _LEAST)
    if _Written.since < _CLEAN_EVERY:
        return False
    _Written.since = 0
    return True


def _clean(directory: int) -> None:
    """Remove the remains of killed processes, and the oldest entries beyond the bounds."""
    entries = []
    for entry in os.scandir(directory):
        with contextlib.suppress(FileNotFoundError):  # removed by another process
            found = entry.stat(follow_symlinks=False)
            is_stale = found.st_mtime < time.time() - _STALE
            if entry.name.startswith(_TEMPORARY):
                if is_stale:
                    os.unlink(entry.name, dir_fd=directory)
            elif stat.S_ISREG(found.st_mode):
                entries.append((found.st_mtime_ns, found.st_size, entry.name))
    total = 0
    for number, (_, size, name) in enumerate(sorted(entries, reverse=True)):
        total += size
        if total > MOST_BYTES or number >= _MOST_ENTRIES:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory)
