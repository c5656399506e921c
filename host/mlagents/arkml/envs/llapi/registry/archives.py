"""Extraction of untrusted archives."""

from __future__ import annotations

import shutil
import stat
import zipfile
import zlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import IO

from arkml.base.short_reprs import cut_repr
from arkml.base.zip_files import DirectoryTooLarge, open_zip
from arkml.envs.llapi.exception import UnityRegistryException

_EXECUTABLE = 0o755  # players are started from the folder
_ENCRYPTED = 0x1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The methods that zipfile unpacks in small parts."""


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """Limits on the size of an archive, and on the number and size of its members."""

    archive_bytes: int = 4 << 30
    directory_bytes: int = 32 << 20  # 300 for a member
    members: int = 100_000
    expanded_bytes: int = 16 << 30
    ratio: int = (
        200  # bytes unpacked for a byte packed; archives that stay below 1 MiB may exceed it
    )


_SMALL = 1 << 20
_LONGEST = 1024  # letters of the name of a member


def extract(archive: Path, folder: Path, limits: ArchiveLimits) -> None:
    """
    Extract a zip file into a new folder.

    Nothing is written if a member is refused: for example one outside of the folder, a link, a
    device, an encrypted or duplicate member, or more or larger members than `limits` allow.

    Raises UnityRegistryException in these cases, and zipfile.BadZipFile for other files.
    """
    with archive.open("rb") as file, _opened(archive, file, limits) as packed:
        members = packed.infolist()
        _check_sizes(archive, members, limits)
        targets = [_target(archive, member) for member in members]
        files = [
            target for target, member in zip(targets, members, strict=True) if not member.is_dir()
        ]
        _check_names(archive, files)
        folder.mkdir(parents=True)
        for target, member in zip(targets, members, strict=True):
            try:
                _write(packed, member, folder / target)
            except (NotImplementedError, EOFError, zlib.error) as error:
                raise zipfile.BadZipFile(
                    f"{member.filename} cannot be unpacked: {error}"
                ) from error


def _opened(archive: Path, file: IO[bytes], limits: ArchiveLimits) -> zipfile.ZipFile:
    try:
        return open_zip(file, limits.directory_bytes)
    except DirectoryTooLarge as error:
        raise UnityRegistryException(f"{archive.name} cannot be unpacked: {error}.") from None


def _check_sizes(archive: Path, members: list[zipfile.ZipInfo], limits: ArchiveLimits) -> None:
    if len(members) > limits.members:
        raise UnityRegistryException(
            f"{archive.name} has {len(members)} members, more than {limits.members}."
        )
    expanded = sum(member.file_size for member in members)
    if expanded > limits.expanded_bytes:
        raise UnityRegistryException(
            f"{archive.name} unpacks to {expanded} bytes, more than {limits.expanded_bytes}."
        )
    packed = archive.stat().st_size
    if expanded > _SMALL and expanded > packed * limits.ratio:
        raise UnityRegistryException(
            f"{archive.name} unpacks from {packed} to {expanded} bytes, "
            f"more than {limits.ratio} times as many."
        )


def _check_names(archive: Path, files: list[PurePosixPath]) -> None:
    names = sorted(f"{file}/".casefold() for file in files)
    # What begins with a name follows that name at once, in this order.
    if any(after.startswith(name) for name, after in pairwise(names)):
        raise UnityRegistryException(f"{archive.name} has two members of one name.")


def _target(archive: Path, member: zipfile.ZipInfo) -> PurePosixPath:
    """Return the path of a member within the folder."""
    name = member.orig_filename
    shown = cut_repr(name)
    path = PurePosixPath(name)
    unsafe = path.is_absolute() or ".." in path.parts or not path.parts
    if len(name) > _LONGEST:
        raise UnityRegistryException(f"{archive.name} has a name of {len(name)} letters: {shown}.")
    if unsafe or any(letter in name for letter in "\\:\0"):
        raise UnityRegistryException(f"{archive.name} has a member outside of it: {shown}.")
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise UnityRegistryException(f"{archive.name} has a member that is not a file: {shown}.")
    if member.flag_bits & _ENCRYPTED:
        raise UnityRegistryException(f"{archive.name} has an encrypted member: {shown}.")
    if member.compress_type not in _METHODS:
        raise UnityRegistryException(
            f"{archive.name} has a member packed by the method {member.compress_type}: {shown}."
        )
    return path


def _write(packed: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    if member.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    # zipfile stops at the size that the member declares, and then compares its checksum.
    with packed.open(member) as source, target.open("xb") as file:
        shutil.copyfileobj(source, file)
    target.chmod(_EXECUTABLE)
