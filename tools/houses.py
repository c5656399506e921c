"""The packages of the repository, each with a source root below host/, which wheels merge."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOUSES = ("base", "arkml", "hive", "trials", "play", "mlagents", "border")
"""The folders below host/, of which none needs a later one but as an extra."""

SOURCE_ROOTS = tuple(ROOT / "host" / house for house in HOUSES)
PYTHONPATH = os.pathsep.join(map(str, SOURCE_ROOTS))


def merge(folder: Path) -> None:
    """Copy all source roots into one folder, as the wheels lie in site-packages."""
    unread = shutil.ignore_patterns("__pycache__", "*.md", "pyproject.toml", "LICENSE-*")
    for root in SOURCE_ROOTS:
        shutil.copytree(root, folder, ignore=unread, dirs_exist_ok=True)


def source(package: str) -> Path:
    """Return the folder of a package, such as arkml/trials/wire."""
    return next(root / package for root in SOURCE_ROOTS if (root / package).is_dir())
