"""Reading, locking and atomic replacement of files."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO, Literal

MOST_OF_SETTINGS = 1 << 20
"""Bytes of a file of settings that a person writes, for `read_file`."""

_MOST_OF_FILE = 1 << 30
_MOST_OF_STREAM = 64 << 20
_STEP = 1 << 20
_MODES = {
    "rb": os.O_RDONLY,
    "r+b": os.O_RDWR,
    "ab": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
}


def write_atomic(
    path: Path,
    data: bytes,
    *,
    durable: bool,
    temporary: Path | None = None,
    mode: int | None = None,
    owner: tuple[int, int] | None = None,
) -> None:
    """
    Replace a file: a reader sees the old content or the new one, never a part.

    A symbolic link is replaced, not followed.

    Args:
        path: The file.
        data: New content.
        durable: Whether to wait until the content and the name are on the disk.
        temporary: File on the same file system that is written first, by default `.<name>.new`
            beside `path`. Processes that write one path at once need different ones.
        mode: Permissions, from the first byte on; by default the permissions of the replaced file.
        owner: User and group id of the file, which only root can set.

    Raises:
        OSError: The temporary file is removed and the old content kept, except if only the wait for
            the name fails: the new file is then in place.

    """
    temporary = temporary or path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)  # a process that was killed may have left it
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o666 if mode is None else mode)
        with os.fdopen(descriptor, "wb") as file:
            if mode is None:
                _keep_mode(path, file.fileno())
            if owner is not None:
                os.fchown(file.fileno(), *owner)
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)


def open_file(
    path: Path,
    *,
    follow: bool = True,
    mode: Literal["rb", "r+b", "ab"] = "rb",
    within: int | None = None,
) -> IO[bytes]:
    """
    Open a regular file, without waiting for a pipe or device that may have its name.

    `within` is the descriptor of the folder to which a relative path is relative, by default the
    current one. Raises OSError for a pipe, a socket, a device or a directory and, without `follow`,
    for a symbolic link.
    """
    require_possible(path)
    flags = _MODES[mode] | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    descriptor = _opened(path, flags, within)
    try:
        return os.fdopen(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise


def open_inside(folder: Path, name: str) -> IO[bytes]:
    """
    Open a regular file in a folder that a user named, such as "data/rows.hdf5".

    The folder may be a symbolic link, since the user named it; its contents may come from anyone.
    Raises OSError as `open_file` does, and for a symbolic link on the way from the folder to the
    file.
    """
    *parents, last = name.split("/")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    descriptor = os.open(folder, flags)
    try:
        for depth, parent in enumerate(parents, 1):
            way = folder.joinpath(*parents[:depth])
            try:
                inner = os.open(parent, flags | os.O_NOFOLLOW, dir_fd=descriptor)
            except NotADirectoryError:  # which a link is here
                if stat.S_ISLNK(os.lstat(parent, dir_fd=descriptor).st_mode):
                    raise _linked(way) from None
                raise
            os.close(descriptor)
            descriptor = inner
        return open_file(Path(last), follow=False, within=descriptor)
    finally:
        os.close(descriptor)


def read_plain(path: Path, *, follow: bool = True, most: int = _MOST_OF_FILE) -> bytes:
    """
    Return the content of a regular file of at most `most` bytes, by default 1 GiB.

    Raises OSError as `open_file` does, and for a larger file.
    """
    with open_file(path, follow=follow) as file:
        return _read_at_most(file, path, most)


def require_possible(path: Path) -> None:
    """Raise OSError for an impossible path, such as one with a zero byte."""
    if "\0" in str(path):  # Python would raise ValueError
        raise OSError(errno.EINVAL, "its name has a null character", str(path))


def _opened(path: Path, flags: int, within: int | None, mode_of_new: int = 0o666) -> int:
    """Open a plain file."""
    try:
        descriptor = os.open(path, flags, mode_of_new, dir_fd=within)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a pipe that nobody reads
            raise _not_plain(path) from None
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise _linked(path) from None
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise _not_plain(path)


def _linked(path: Path) -> OSError:
    return OSError(errno.ELOOP, "it is a symbolic link, which is not followed", str(path))


def _not_plain(path: Path) -> OSError:
    return OSError(errno.EINVAL, "it is not a plain file", str(path))


def read_file(path: Path, *, most: int | None = None) -> bytes:
    """
    Return the content of a file, which has at most `most` bytes.

    Without `most` a regular file may have 1 GiB, and any other file 64 MiB: so pipes are read to
    their ends, and endless devices such as /dev/zero are refused. Raises OSError, also for a larger
    file and for an impossible path.
    """
    require_possible(path)
    with path.open("rb") as file:
        if most is None and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return _read_at_most(file, path, _MOST_OF_STREAM, "it is not a plain file, and has")
        return _read_at_most(file, path, _MOST_OF_FILE if most is None else most)


def _read_at_most(file: IO[bytes], path: Path, most: int, text: str = "it has") -> bytes:
    """Return the content of a file; one that is too large is not read. Raises OSError."""
    size = os.fstat(file.fileno()).st_size  # 0 for a pipe, and for files of /proc
    parts, room = list[bytes](), most + 1
    step = max(size + 1, _STEP)  # Python takes memory for all that it is to read
    while size <= most and room and (part := file.read(min(step, room))):
        parts.append(part)
        room -= len(part)
    if size > most or not room:
        raise OSError(errno.EFBIG, f"{text} more than {most:,} bytes", str(path))
    return b"".join(parts)


def sync_directory(path: Path) -> None:
    """Wait until the names in a directory are on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _keep_mode(path: Path, descriptor: int) -> None:
    if path.is_file():
        os.fchmod(descriptor, path.stat().st_mode & 0o7777)


def lock_file(path: Path) -> int:
    """
    Lock a file exclusively, until the returned file descriptor and its copies are closed.

    Raises BlockingIOError if another process holds the lock, and OSError, also for anything but a
    regular file, such as a symbolic link.
    """
    import fcntl

    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = _opened(path, flags, None, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _not_plain(path) from None
        raise
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def named(name: str | Path, text: str) -> str:
    """Return a text prefixed with a file's name, unless the text contains the name."""
    return text if Path(name).name in text else f"{name}: {text}"
