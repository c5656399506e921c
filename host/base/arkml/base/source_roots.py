"""The folders from which Python imports this package, for the paths of other processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def source_roots() -> str:
    """Return the folders of `sys.path` with parts of `arkml`, joined as PYTHONPATH."""
    package = sys.modules[__name__.partition(".")[0]]
    return os.pathsep.join(str(Path(part).parent) for part in package.__path__)
