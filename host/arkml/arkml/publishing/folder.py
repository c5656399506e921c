"""The folder of a published site, which is written completely or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from arkml.errors import UsageError

MARK = "arkml-site.json"
"""The file by which a folder is known to have been published."""


def require_own(folder: Path) -> None:
    """Raise UsageError for a folder that contains files which `publish` has not written."""
    if not folder.exists() and not folder.is_symlink():
        return
    if not folder.is_dir() or folder.is_symlink():
        raise UsageError(f"-o {folder} is there, and no folder: name another")
    try:
        names = sorted(each.name for each in folder.iterdir())
    except OSError as error:
        raise UsageError(f"-o {folder} cannot be read: {error.strerror}") from None
    if names and MARK not in names:
        raise UsageError(
            f"-o {folder} has other things in it, such as {names[0]}: name a folder that is new, or"
            " one that `arkml publish` has written"
        )


def write_folder(folder: Path, contents: Mapping[str, bytes]) -> None:
    """
    Write files, given by name, into a folder, replacing a folder that was published before.

    The old folder stays until the new one is complete. Raises UsageError.
    """
    require_own(folder)
    target = folder.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".arkml-", dir=target.parent) as scratch:
            new, old = Path(scratch, "new"), Path(scratch, "old")
            new.mkdir()
            for name, data in contents.items():
                (new / name).write_bytes(data)
            new.chmod(0o755)
            if target.exists():
                target.rename(old)
            try:
                new.rename(target)
            except OSError:
                if old.exists():
                    old.rename(target)
                raise
            shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise UsageError(f"-o {folder} cannot be written: {error.strerror}") from None
