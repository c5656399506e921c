"""Restoring a hive from a backup: an archive is not trusted, and is checked before it is used."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from arkml.base.files import open_file, sync_directory
from arkml.errors import HiveError, UsageError
from arkml.hive.protocol.wire import Count
from arkml.server.access.token_file import TokenEntry, TokenFile
from arkml.server.backup import (
    FORMAT,
    MANIFEST_NAME,
    MODULES,
    PART,
    RUNS,
    Progress,
    is_left_out,
)
from arkml.server.ownership import give, make_parents, owner_to_be
from arkml.server.upgrade import DATA_VERSION

_BLOCK = tarfile.BLOCKSIZE
_CHUNK = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_FILES = 1_000_000
_MOST_DEPTH = 8
_MOST_ENTRY = 256  # bytes of a file in a manifest, besides its name; `write_backup` takes 140
_MOST_REST = 4 << 10  # bytes of a manifest without its files
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
Entries = dict[str, tuple[int, str]]
"""Size and SHA-256 of each file, by its name."""


_UNKNOWN = msgspec.Raw(b"null")


class _Manifest(msgspec.Struct, frozen=True):
    """A manifest whose values are parsed one by one, each as the type that it must have."""

    format: msgspec.Raw = _UNKNOWN
    data_version: msgspec.Raw = _UNKNOWN
    release: msgspec.Raw = _UNKNOWN
    created_at: msgspec.Raw = _UNKNOWN
    files: msgspec.Raw = _UNKNOWN


class _Listed(msgspec.Struct, frozen=True):
    """A file in a manifest."""

    name: str
    size: Count
    sha256: str


@dataclass(frozen=True, slots=True)
class RestoreSummary:
    """
    The contents of a restored directory; `created_at` is in nanoseconds since the epoch.

    `tokens` are valid there: all tokens of the backup that have not expired, including tokens that
    were revoked after the backup was made.
    """

    files: int
    size: int
    runs: tuple[str, ...]
    release: str
    created_at: int
    tokens: tuple[TokenEntry, ...]


def restore_backup(
    archive: Path, data: Path, progress: Progress = lambda *_: None
) -> RestoreSummary:
    """
    Make the data directory of a hive from an archive; only its owner can read the files.

    If root makes the directory, it belongs to the owner of its parent, or keeps its own owner.

    Args:
        archive: An archive of `write_backup`. It is not trusted: it is refused if an entry is not a
            plain file, has a path that no backup has, or differs from the manifest.
        data: A directory that does not exist, or is empty. It is written as a whole or not at all.
        progress: Called while files are written, for example to draw a bar.

    Raises:
        HiveError: The archive is refused, or was made by a newer release.
        UsageError: The directory is in use.
        OSError: A file cannot be read or written.

    """
    target = data.resolve()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{data} is not empty: restore into a new directory")
    make_parents(target)
    owner = owner_to_be(target if target.exists() else target.parent)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    part.mkdir(0o700)
    try:
        with open_file(archive) as file, ExitStack() as opened:
            directory = os.open(part, _FOLDER)
            opened.callback(os.close, directory)
            reader = _Reader(archive, file, progress)
            manifest = reader.extract(directory)
            summary = reader.summary(manifest, _tokens_in(part))
            _made([RUNS], directory, opened)
            if owner is not None:
                give(directory, owner)
            _sync(directory)
        _rename(part, target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    sync_directory(target.parent)
    return summary


class _Reader:
    """An archive that is read header by header; its contents are not trusted."""

    def __init__(self, path: Path, file: IO[bytes], progress: Progress) -> None:
        self._path = path
        self._file = file
        self._progress = progress
        self._length = os.fstat(file.fileno()).st_size
        self._found: Entries = {}

    def extract(self, directory: int) -> _Manifest:
        """
        Extract all files into an empty directory that is open, and return the manifest.

        Raises HiveError.
        """
        manifest: _Manifest | None = None
        while manifest is None:
            info = self._next()
            if info.name == MANIFEST_NAME:
                manifest = self._manifest(info)
            else:
                self._extract(info, directory)
        self._check(manifest)
        return manifest

    def summary(self, manifest: _Manifest, tokens: Iterable[TokenEntry]) -> RestoreSummary:
        """Return a summary of the extracted files, with the tokens that have not expired."""
        runs = {name.split("/")[1] for name in self._found if name.startswith(f"{RUNS}/")}
        size = sum(size for size, _ in self._found.values())
        release = _value(manifest.release, str) or ""
        return RestoreSummary(
            len(self._found),
            size,
            tuple(sorted(runs)),
            release[:64],
            _value(manifest.created_at, Count) or 0,
            tuple(one for one in tokens if not one.is_expired(time.time())),
        )

    def _next(self) -> tarfile.TarInfo:
        """Return the next header. Raises HiveError."""
        block = self._file.read(_BLOCK)
        try:
            info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError, ValueError) as error:
            if self._found:
                raise self._refused(f"it ends after {len(self._found)} files") from error
            raise self._refused(f"it has no header: {error}") from error
        if info.type != tarfile.REGTYPE:
            raise self._refused(f"{info.name!r:.120} is not a plain file")
        if not 0 <= info.size <= self._length - self._file.tell():
            raise self._refused(f"{info.name!r:.120} is longer than the archive")
        if len(self._found) >= _MOST_FILES:
            raise self._refused(f"it has more than {_MOST_FILES} files")
        return info

    def _extract(self, info: tarfile.TarInfo, directory: int) -> None:
        """Write one file. Raises HiveError for a place where a backup has none."""
        name, parts = info.name, info.name.split("/")
        at_place = not is_left_out(name) if len(parts) == 1 else parts[0] in (RUNS, MODULES)
        at_place = at_place and not name.endswith(("-journal", "-shm"))  # SQLite would read them
        if not at_place or len(parts) > _MOST_DEPTH or not all(map(PART.fullmatch, parts)):
            raise self._refused(f"{name!r:.120} is not the name of a file of a hive")
        if name in self._found:
            raise self._refused(f"{name!r:.120} is in it twice")
        digest = hashlib.sha256()
        modified = min(max(0.0, float(info.mtime)), time.time())
        try:
            with ExitStack() as opened:
                folder = _made(parts[:-1], directory, opened)
                made = os.open(parts[-1], _NEW, 0o600, dir_fd=folder)
        except (FileExistsError, NotADirectoryError) as error:
            raise self._refused(f"{name!r:.120} is a file and a folder") from error
        with os.fdopen(made, "wb") as file:
            left = info.size
            while left:
                data = self._read(min(left, _CHUNK))
                digest.update(data)
                file.write(data)
                left -= len(data)
            file.flush()
            os.utime(file.fileno(), (modified, modified))
            os.fsync(file.fileno())
        self._read(-info.size % _BLOCK)
        self._found[name] = info.size, digest.hexdigest()
        self._progress(self._file.tell() >> 20, self._length >> 20)

    def _manifest(self, info: tarfile.TarInfo) -> _Manifest:
        """Return the manifest, which is no larger than the files before it can make it."""
        if info.size > _MOST_REST + sum(_MOST_ENTRY + len(name) for name in self._found):
            raise self._refused(f"its manifest has {info.size} bytes")
        try:
            return msgspec.json.decode(self._read(info.size), type=_Manifest)
        except _NOT_JSON as error:
            raise self._refused(f"its manifest cannot be read: {error}") from error

    def _check(self, manifest: _Manifest) -> None:
        """Raise HiveError unless the files match the manifest."""
        for name, own in (("format", FORMAT), ("data_version", DATA_VERSION)):
            value: msgspec.Raw = getattr(manifest, name)
            number = _value(value, int)
            if number is None or not 1 <= number <= own:
                shown = bytes(value)[:20].decode("ascii", "replace")
                raise self._refused(
                    f"its {name} is {shown}, and this release of arkml reads up to {own}:"
                    " use the release that wrote it, or a newer one"
                )
        try:
            files = msgspec.json.decode(manifest.files, type=list[_Listed])
        except _NOT_JSON as error:
            raise self._refused(f"its manifest does not list files: {error}") from error
        listed: Entries = {one.name: (one.size, one.sha256) for one in files}
        for name in sorted(listed.keys() | self._found.keys()):
            if name not in self._found:
                raise self._refused(f"{name!r:.120} of its manifest is missing")
            if name not in listed:
                raise self._refused(f"{name!r:.120} is not in its manifest")
            if listed[name] != self._found[name]:
                raise self._refused(f"{name!r:.120} has another SHA-256 than its manifest says")

    def _read(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise self._refused("it is cut off")
        return data

    def _refused(self, reason: str) -> HiveError:
        return HiveError(f"{self._path} is not a whole backup of a hive: {reason}")


def _value(value: msgspec.Raw, kind: Any) -> Any:
    """Return the value of a JSON text, None if it is of another type."""
    try:
        return msgspec.json.decode(value, type=kind)
    except _NOT_JSON:
        return None


def _made(folders: Sequence[str], directory: int, opened: ExitStack) -> int:
    """
    Make folders, each in the one before and the first in a directory, and open the last one.

    Raises OSError; no link is followed, also none that another user makes meanwhile.
    """
    for one in folders:
        with suppress(FileExistsError):
            os.mkdir(one, 0o700, dir_fd=directory)
        directory = os.open(one, _FOLDER, dir_fd=directory)
        opened.callback(os.close, directory)
    return directory


def _tokens_in(directory: Path) -> tuple[TokenEntry, ...]:
    """Return the tokens of a restored hive; empty for a damaged file, with which no hive opens."""
    try:
        return TokenFile(directory).read()
    except HiveError:
        return ()


def _rename(part: Path, target: Path) -> None:
    """Move a directory to its place. Raises HiveError if the place cannot be replaced."""
    try:
        part.rename(target)
    except OSError as error:
        raise HiveError(
            f"{target} cannot be replaced ({error.strerror}): restore into a new directory in it"
        ) from error


def _sync(directory: int) -> None:
    """Wait until the disk has the names in a directory that is open, and in those below it."""
    for _, _, _, folder in os.fwalk(".", dir_fd=directory):
        os.fsync(folder)
