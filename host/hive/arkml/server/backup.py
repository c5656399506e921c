"""Backups of a hive: its data directory in one tar file, written also while the hive serves."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from arkml.base.files import sync_directory
from arkml.base.release import RELEASE
from arkml.base.sqlite_files import SIDE_FILES
from arkml.errors import HiveError, ProtocolError, UsageError
from arkml.hive.protocol.documents import parse_object
from arkml.hive.protocol.rows import end_of_damaged, read_records
from arkml.hive.protocol.runs import DOCUMENT_NAME
from arkml.server.folders import Folder
from arkml.server.metrics_store import STORE_NAME, WAL_NAME
from arkml.server.session_figures import COUNTS_NAME
from arkml.server.upgrade import DATA_VERSION

FORMAT = 1
"""The version of the manifest and of the names in an archive."""

MANIFEST_NAME = "manifest.json"
"""The last member of an archive: the name, the size and the SHA-256 of each other one."""

RUNS, MODULES, ROWS = "runs", "modules", "rows"

PART = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._ @+-]{0,99}", re.ASCII)
"""One part of a path in an archive: a hive has no others, except for temporary files."""

Progress = Callable[[int, int], None]
"""Called with the number of files that are done, and of all that are expected."""

_ATTEMPTS = 50
_WAL_HEADER = 32
"""Bytes of the header of SQLite's write-ahead log, which has other salts after each checkpoint."""

_CHUNK = 1 << 20
_LEFT_OUT = re.compile(r"lock|index\.sqlite.*|.*\.(log|lock)")
_TARGETS = (".onnx", ".safetensors")
"""Endings of files that others name: the others, such as `newest.json`, are opened first."""


@dataclass(frozen=True, slots=True)
class BackupSummary:
    """
    The contents of an archive: the number of files, their size in bytes, and the ids of runs.

    `left_out` are runs that were deleted while the archive was written.
    """

    files: int
    size: int
    runs: tuple[str, ...]
    left_out: tuple[str, ...] = ()


class _Changed(Exception):
    """The rows of a run were replaced while they were opened."""


@dataclass(slots=True)
class _Taken:
    """An open file: the archive gets its first `size` bytes."""

    name: str
    file: IO[bytes]
    size: int
    modified: float


def write_backup(data: Path, output: Path, progress: Progress = lambda *_: None) -> BackupSummary:
    """
    Write the data directory of a hive to an archive, which only its owner may read.

    The hive may serve meanwhile. The archive has everything that the hive acknowledged before the
    call: rows, runs, sessions, policy versions, checkpoints, metrics, modules, tokens. Each run is
    as if its hive had been killed at one moment. Logs are left out: a hive makes them anew.

    Args:
        data: The data directory of a hive.
        output: The archive to write. A device or a pipe takes the bytes as they come.
        progress: Called while files are written, for example to draw a bar.

    Raises:
        HiveError: `data` is not the data directory of a hive.
        UsageError: `output` lies in `data`.
        OSError: A file cannot be read or written.

    """
    if not (data / RUNS).is_dir():
        raise HiveError(f"{data} is not the data directory of a hive: it has no folder {RUNS!r}")
    target = output.resolve()
    if data.resolve() in target.parents:
        raise UsageError(f"{output} lies in {data}: write the backup of a directory outside of it")
    if output.exists() and not output.is_file():
        with output.open("wb") as stream:
            return _Archive(stream, progress, _count(data)).write(data)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            summary = _Archive(file, progress, _count(data)).write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_directory(target.parent)
    return summary


def is_left_out(name: str) -> bool:
    """
    Return whether archives leave out the file of this name in the data directory.

    These are files that a hive can make anew, such as its log; files of runs are not asked about.
    """
    return _LEFT_OUT.fullmatch(name) is not None


class _Archive:
    """An archive that is being written."""

    def __init__(self, file: IO[bytes], progress: Progress, expected: int) -> None:
        self._file = _Counted(file)
        self._tar = tarfile.open(fileobj=self._file, mode="w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115
        self._progress = progress
        self._expected = expected
        self._entries: list[dict[str, Any]] = []

    def write(self, data: Path) -> BackupSummary:
        """Write everything, and the manifest at the end."""
        begun = time.time_ns()
        runs: dict[str, bool] = {}
        with Folder.open(data) as root:
            if (folder := root.folder(RUNS)) is not None:
                with folder:
                    runs = {name: self._add_run(folder, name) for name in _names(folder)}
            with ExitStack() as files:
                self._add_all(list(_take_others(root, files)))
        manifest = {
            "format": FORMAT,
            "data_version": DATA_VERSION,
            "release": RELEASE,
            "created_at": begun,
            "files": self._entries,
        }
        text = json.dumps(manifest, indent=1).encode()
        self._add(_Taken(MANIFEST_NAME, io.BytesIO(text), len(text), time.time()))
        self._tar.close()
        return BackupSummary(
            len(self._entries) - 1,
            self._file.tell(),
            tuple(name for name, is_there in runs.items() if is_there),
            tuple(name for name, is_there in runs.items() if not is_there),
        )

    def _add_run(self, runs: Folder, name: str) -> bool:
        """Append the files of a run, and return whether it has any."""
        with ExitStack() as files:
            taken = _take_run(runs, name, files)
            self._add_all(taken)
        return bool(taken)

    def _add_all(self, taken: list[_Taken]) -> None:
        for one in taken:
            self._add(one)
            self._progress(len(self._entries), max(self._expected, len(self._entries)))

    def _add(self, taken: _Taken) -> None:
        """Append one file. Raises HiveError if it was cut off meanwhile."""
        info = tarfile.TarInfo(taken.name)
        info.size, info.mode = taken.size, 0o600
        info.mtime = int(min(max(0.0, taken.modified), time.time()))  # as a restore takes it
        reader = _Digest(taken)
        try:
            self._tar.addfile(info, reader)
        except (OSError, ValueError) as error:
            if reader.was_cut:
                raise HiveError(f"{taken.name} was cut off while it was read") from error
            raise
        digest = reader.sha256.hexdigest()
        self._entries.append({"name": taken.name, "size": taken.size, "sha256": digest})


class _Counted(io.BufferedIOBase):
    """A file to write to that knows its position, which a pipe does not."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        written = self._file.write(data)
        self._size += written
        return written

    def tell(self) -> int:
        return self._size


class _Digest(io.RawIOBase):
    """A reader of a file from its beginning, which computes a digest of the bytes read."""

    def __init__(self, taken: _Taken) -> None:
        self.sha256 = hashlib.sha256()
        self.was_cut = False
        self._file = taken.file
        self._file.seek(0)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.was_cut = len(data) < size
        self.sha256.update(data)
        return data


def _take_run(runs: Folder, run: str, files: ExitStack) -> list[_Taken]:
    """Open the files of a run as they are at one moment; none if it was removed."""
    for attempt in range(_ATTEMPTS):
        with ExitStack() as opened:
            folder = runs.folder(run)
            if folder is None:
                return []
            with folder:
                try:
                    taken = _taken_once(folder, f"{RUNS}/{run}", opened)
                except FileNotFoundError:
                    if folder.status(DOCUMENT_NAME) is None:
                        return []
                    taken = None
                except _Changed:
                    taken = None
            if taken is not None:
                files.enter_context(opened.pop_all())
                return taken
        time.sleep(0.001 * attempt)
    raise HiveError(f"{runs.path / run} changes all the time, so it cannot be backed up")


def _taken_once(run: Folder, name: str, files: ExitStack) -> list[_Taken]:
    """
    Open the files of a run.

    A checkpoint counts rows, and a row has a session: the checkpoints are opened before the rows,
    and the document is read after them, with the rows that it counted before.
    Raises FileNotFoundError and _Changed if the files are replaced meanwhile.
    """
    before = _parsed(_read_document(run)[0])
    # A rollback journal is there while SQLite makes the database, which has nothing then.
    beside = (f"{STORE_NAME}{end}" for end in SIDE_FILES)
    skipped = (ROWS, DOCUMENT_NAME, STORE_NAME, *beside)
    taken = list(_take_folder(run, name, files, skipped))
    taken += _take_store(run, name)
    if (rows := run.folder(ROWS)) is not None:
        with rows:
            taken += _take_rows(rows, f"{name}/{ROWS}", files)
    content, modified = _read_document(run)
    after = _parsed(content)
    if before is not None and after is not None and "rows" in before:
        content = json.dumps({**after, "rows": before["rows"]}, indent=1).encode()
    taken.append(_Taken(f"{name}/{DOCUMENT_NAME}", io.BytesIO(content), len(content), modified))
    return taken


def _read_document(run: Folder) -> tuple[bytes, float]:
    """Return the document of a run, and when it was written. Raises FileNotFoundError."""
    found = _read_file(run, DOCUMENT_NAME)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "there is no such file", str(run.path))
    return found


def _read_file(run: Folder, name: str) -> tuple[bytes, float] | None:
    """Return the content of a file of a run, and when it was written; None without the file."""
    file = run.file(name)
    if file is None:
        return None
    with file:
        return file.read(), os.fstat(file.fileno()).st_mtime


def _take_folder(
    folder: Folder, name: str, files: ExitStack, skipped: tuple[str, ...] = ()
) -> Iterator[_Taken]:
    """Open the files in a folder and below; files that name others, such as `best`, come first."""
    done = set(skipped)
    for is_late in (False, True):
        for one in _names(folder):
            if one in done or (one.endswith(_TARGETS) and not is_late):
                continue
            done.add(one)
            if (below := folder.folder(one)) is not None:
                with below:
                    yield from _take_folder(below, f"{name}/{one}", files)
            elif opened := _opened(folder, one, f"{name}/{one}", files):
                yield opened


def _take_rows(folder: Folder, name: str, files: ExitStack) -> Iterator[_Taken]:
    """Open the segments of a log, up to its last whole record, and the counts of their rows."""
    counts = _opened(folder, COUNTS_NAME, f"{name}/{COUNTS_NAME}", files)
    identity = None if counts is None else os.fstat(counts.file.fileno()).st_ino
    segments = []
    for one in _names(folder):
        if one.endswith(".rows"):
            opened = _opened(folder, one, f"{name}/{one}", files)
            if opened is None:
                raise _Changed
            segments.append(opened)
    found = folder.status(COUNTS_NAME)
    if (None if found is None else found.st_ino) != identity:  # segments were removed, and counted
        raise _Changed
    for segment in segments:
        segment.file.seek(0)
        segment.size = _end(segment.file.read(segment.size))
    yield from segments if counts is None else [counts, *segments]


def _take_store(run: Folder, name: str) -> list[_Taken]:
    """
    Read the database of metrics, and what SQLite has not put there yet.

    The one is written by checkpoints alone, and the other grows until the one after which it begins
    anew, with another salt in its header: what is read belongs together if neither has happened.
    Raises _Changed.
    """
    found = [(one, _read_file(run, one)) for one in (STORE_NAME, WAL_NAME)]
    for (one, before), size in zip(found, (None, _WAL_HEADER), strict=True):
        after = _read_file(run, one)
        if (before and before[0][:size]) != (after and after[0][:size]):
            raise _Changed
    return [
        _Taken(f"{name}/{one}", io.BytesIO(content), len(content), modified)
        for one, (content, modified) in ((one, read) for one, read in found if read is not None)
    ]


def _take_others(data: Folder, files: ExitStack) -> Iterator[_Taken]:
    """Open the files beside the runs."""
    for name in _names(data):
        if is_left_out(name):
            continue
        if (folder := data.folder(name)) is not None:
            with folder:
                yield from _take_folder(folder, name, files) if name == MODULES else ()
        elif one := _opened(data, name, name, files):
            yield one


def _opened(folder: Folder, one: str, name: str, files: ExitStack) -> _Taken | None:
    """Open a file; None if it is not there any more. Raises HiveError, and OSError."""
    file = folder.file(one)
    if file is None:
        return None
    status = os.fstat(files.enter_context(file).fileno())
    return _Taken(name, file, status.st_size, status.st_mtime)


def _end(data: bytes) -> int:
    """Return the end of the bytes written to a segment; the space behind it is only allocated."""
    end = 0
    for record in read_records(memoryview(data), 0, len(data)):
        end = record.end
    return end_of_damaged(memoryview(data), end, len(data))


def _parsed(content: bytes) -> dict[str, Any] | None:
    """Return the values of a document, None for a damaged one, which is backed up unchanged."""
    try:
        return parse_object(content)
    except ProtocolError:
        return None


def _names(folder: Folder) -> list[str]:
    """Return the names in a folder that an archive can have."""
    return sorted(name for name in folder.names() if PART.fullmatch(name))


def _count(data: Path) -> int:
    """Return the number of files that an archive is expected to have."""
    folders = [one for one in (data / RUNS, data / MODULES) if not one.is_symlink()]
    return sum(len(names) for folder in folders for _, _, names in os.walk(folder))
