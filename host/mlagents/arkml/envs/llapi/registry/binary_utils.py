"""Downloaded players, each stored in its own folder."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from arkml.base.loggers import SafeLogger
from arkml.base.short_reprs import cut_repr, cut_text
from arkml.envs.llapi.env_utils import validate_environment_path
from arkml.envs.llapi.exception import UnityRegistryException
from arkml.envs.llapi.registry import download
from arkml.envs.llapi.registry.archives import ArchiveLimits, extract

logger = SafeLogger(__name__)

_ATTEMPTS = 5
_EXTENSIONS = {"linux": "*.x86_64", "darwin": "*.app", "win32": "*.exe"}
_NAME = re.compile(r"\w[\w .+-]*")
_DIGEST = "archive.sha256"


def get_local_binary_path(
    name: str,
    url: str,
    tmp_dir: str | None = None,
    *,
    sha256: str | None = None,
    limits: ArchiveLimits | None = None,
) -> str:
    """
    Return the path of the player in the archive at `url`, which is downloaded once.

    Args:
        name: Name of the environment.
        url: URL of the archive.
        tmp_dir: Folder for downloads, by default the system's temporary folder.
        sha256: Expected SHA-256 of the archive, or None.
        limits: Limits of the archive.

    Raises:
        FileNotFoundError: The archive has no player.
        ConnectionError: The archive cannot be downloaded.
        UnityRegistryException: The archive is refused, or its SHA-256 differs.

    """
    path = get_local_binary_path_if_exists(name, url, tmp_dir, sha256=sha256)
    attempt = 0
    while path is None and attempt < _ATTEMPTS:
        attempt += 1
        try:
            download_and_extract_zip(url, name, tmp_dir, sha256=sha256, limits=limits)
        except ConnectionError:
            if attempt == _ATTEMPTS:
                raise
            logger.warning("Attempt %s of %s to download %s failed", attempt, _ATTEMPTS, url)
        except zipfile.BadZipFile as error:
            raise FileNotFoundError(_not_found(url)) from error
        else:
            path = get_local_binary_path_if_exists(name, url, tmp_dir, sha256=sha256)
            break
    if path is None:
        raise FileNotFoundError(_not_found(url))
    return path


def get_local_binary_path_if_exists(
    name: str, url: str, tmp_dir: str | None = None, *, sha256: str | None = None
) -> str | None:
    """
    Return the path of the player from the archive at `url` if it was downloaded, or None.

    `sha256` is the digest that the archive must have had, or None.
    """
    extension = _EXTENSIONS.get(sys.platform)
    if extension is None:
        raise NotImplementedError("No extensions found for this platform.")
    folder = _folder(name, url, tmp_dir)
    if sha256 is not None and _digest(folder) != sha256.lower():
        return None
    for candidate in sorted(folder.rglob(extension)):
        if "UnityCrashHandler" not in candidate.name and validate_environment_path(str(candidate)):
            return str(candidate)
    return None


def get_tmp_dirs(tmp_dir: str | None = None) -> tuple[str, str]:
    """
    Create and return the folders of archives and of players.

    Raises UnityRegistryException if another user owns them, since their contents are executed.
    """
    top = Path(tmp_dir or tempfile.gettempdir()) / "ml-agents-binaries"
    folders = (top, top / "tmp", top / "binaries")
    for folder in folders:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if folder.is_symlink() or (hasattr(os, "getuid") and folder.stat().st_uid != os.getuid()):
            raise UnityRegistryException(f"The folder {folder} belongs to another user.")
    return str(folders[1]), str(folders[2])


def download_and_extract_zip(
    url: str,
    name: str,
    tmp_dir: str | None = None,
    *,
    sha256: str | None = None,
    limits: ArchiveLimits | None = None,
) -> None:
    """
    Download the archive at `url` and extract it, replacing an earlier extraction.

    Another process may do the same at once. Raises zipfile.BadZipFile and the errors of
    `get_local_binary_path`, leaving nothing behind.
    """
    limits = limits or ArchiveLimits()
    archives, _ = get_tmp_dirs(tmp_dir)
    folder = _folder(name, url, tmp_dir)
    with _scratch(Path(archives)) as scratch:
        archive = scratch / "archive.zip"
        with archive.open("wb") as file:
            digest = download.copy(url, file, limits.archive_bytes)
        if sha256 is not None and digest != sha256.lower():
            raise UnityRegistryException(
                f"{cut_text(url)} has the SHA-256 {digest}, not {cut_text(sha256)}."
            )
        extract(archive, scratch / "player", limits)
        (scratch / "player" / _DIGEST).write_text(digest)
        if folder.exists():
            folder.rename(scratch / "old")
        try:
            (scratch / "player").rename(folder)
        except OSError:
            if not folder.exists():  # otherwise another process was faster
                raise


@contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    folder = parent / str(uuid.uuid4())
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _folder(name: str, url: str, tmp_dir: str | None) -> Path:
    if not _NAME.fullmatch(name):
        raise UnityRegistryException(f"{cut_repr(name)} cannot be the name of a folder.")
    # The digest only distinguishes URLs: it has no security purpose.
    key = hashlib.md5(url.encode(), usedforsecurity=False).hexdigest()
    return Path(get_tmp_dirs(tmp_dir)[1]) / f"{name}-{key}"


def _digest(folder: Path) -> str | None:
    try:
        return (folder / _DIGEST).read_text()
    except FileNotFoundError:
        return None


def _not_found(url: str) -> str:
    return (
        f"Binary not found, make sure {cut_text(url)} is a valid url to "
        "a zip folder containing a valid Unity executable"
    )
