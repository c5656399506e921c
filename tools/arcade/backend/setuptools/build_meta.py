"""A build backend that answers pip's question for metadata from PKG-INFO, and builds nothing."""

from __future__ import annotations

import shutil
import sys
from email.parser import HeaderParser
from pathlib import Path

__legacy__ = sys.modules[__name__]  # the backend of archives that name none


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: object = None
) -> str:
    """Copy the metadata that the archive brings, and return the name of their folder."""
    del config_settings
    fields = HeaderParser().parsestr(Path("PKG-INFO").read_text(encoding="utf-8"))
    name = f"{fields['Name'].replace('-', '_')}-{fields['Version']}.dist-info"
    folder = Path(metadata_directory) / name
    folder.mkdir()
    shutil.copyfile("PKG-INFO", folder / "METADATA")
    return name
