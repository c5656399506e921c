"""The source archives of the games: fetched by pip with pinned hashes, and unpacked."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

PINS = Path(__file__).with_name("sources.txt")
UNPACKED = "sources"
"""The folder of the unpacked archives, beside the guests."""

_BACKEND = Path(__file__).with_name("backend")
_PIN = re.compile(r"^(\S+)==(\S+) --hash=sha256:([0-9a-f]{64})$", re.MULTILINE)
_NEEDED = {".h", ".cpp", ".bin"}  # of what the archives have


class ArcadeError(Exception):
    """A failure that leaves nothing to build; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Archive:
    """A pinned source archive."""

    name: str
    version: str
    sha256: str

    @property
    def folder(self) -> str:
        """The one folder that the archive has."""
        return f"{self.name}-{self.version}"

    @property
    def file(self) -> str:
        """The name of the archive."""
        return f"{self.folder}.tar.gz"


def pinned(pins: Path = PINS) -> list[Archive]:
    """Return the archives that a requirements file pins."""
    return [Archive(*found) for found in _PIN.findall(pins.read_text(encoding="utf-8"))]


def sources(folder: Path, pins: Path = PINS) -> Path:
    """
    Return the folder with the unpacked archives, after fetching those that are not there.

    Raises:
        ArcadeError: An archive cannot be fetched, is another than the pinned one, or has a member
            that would be written outside its folder.

    """
    unpacked = folder / UNPACKED
    missing = [one for one in pinned(pins) if not (unpacked / one.folder).is_dir()]
    if any(not (folder / one.file).is_file() for one in missing):
        _fetch(folder, pins)
    for one in missing:
        _unpack(one, folder / one.file, unpacked)
    return unpacked


def _fetch(folder: Path, pins: Path) -> None:
    """
    Download the archives. pip wants their metadata, which our backend reads without theirs.

    Without `--use-pep517` an older pip, such as that of Debian 12, would run their setup.py.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
        "--retries", "1", "--require-hashes", "--no-deps", "--no-binary", ":all:",
        "--no-build-isolation", "--use-pep517", "--dest", str(folder), "--requirement", str(pins),
    ]  # fmt: skip
    found = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(_BACKEND)},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if found.returncode != 0:
        if "DO NOT MATCH THE HASHES" in found.stderr:
            raise ArcadeError(f"the index has other archives than those that {pins.name} pins")
        raise ArcadeError(f"pip cannot fetch the archives of the games: {_reason(found.stderr)}")


def _reason(text: str) -> str:
    """Return the last error of pip, without its prefix."""
    errors = [line for line in text.splitlines() if line.lower().startswith("error:")]
    return errors[-1][len("error:") :].strip() if errors else "it gave no reason"


def _unpack(archive: Archive, path: Path, into: Path) -> None:
    """Unpack the sources of an archive, all of them or none."""
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != archive.sha256:
        raise ArcadeError(f"{path} is not the pinned archive: its SHA-256 is {found}; remove it")
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into) as room:
        try:
            with tarfile.open(path) as tar:
                _write_sources(tar, Path(room).resolve())
        except tarfile.TarError as error:
            raise ArcadeError(f"{path} cannot be unpacked: {error}") from error
        shutil.move(Path(room) / archive.folder, into / archive.folder)


def _write_sources(tar: tarfile.TarFile, room: Path) -> None:
    """
    Write the files that are sources, and no links. Raises TarError for one outside of the folder.

    Filters of tarfile, which do the same, came with Python 3.11.4; Debian 12 has 3.11.2.
    """
    for member in tar:
        path = (room / member.name).resolve()
        if not path.is_relative_to(room):
            raise tarfile.ExtractError(f"{member.name!r} would be outside of its folder")
        content = tar.extractfile(member) if member.isfile() and path.suffix in _NEEDED else None
        if content is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with content, path.open("wb") as file:
                shutil.copyfileobj(content, file)
