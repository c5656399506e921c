"""The seeds of the fuzz targets, in `fixtures/fuzz`, a folder for each."""

from __future__ import annotations

from pathlib import Path

CORPUS = Path(__file__).parents[2] / "fixtures" / "fuzz"


def files_of(folder: str) -> list[Path]:
    """Return the files of one folder of the corpus."""
    return sorted(path for path in (CORPUS / folder).iterdir() if path.is_file())


def seeds_of(folder: str) -> list[bytes]:
    """Return the contents of the files of one folder."""
    return [path.read_bytes() for path in files_of(folder)]
