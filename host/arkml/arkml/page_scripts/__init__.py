"""Scripts and styles that web pages of arkml share: agents in a plane, their values, replays."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

FOLDER = Path(str(files(__name__)))
"""The folder with the files, which pages serve as `shared/`."""
