"""The folders that Python imports this package from, for the paths of other processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def source_roots() -> str:
    """Return the folders of `sys.path` that hold parts of `arkml`, as PYTHONPATH joins them."""
    package = sys.modules[__name__.partition(".")[0]]
    return os.pathsep.join(str(Path(part).parent) for part in package.__path__)
