"""What the tests with compilers share: the recipes of `fixtures/regenerate.py`."""

import runpy
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parents[2]
regenerate = SimpleNamespace(**runpy.run_path(str(ROOT / "fixtures" / "regenerate.py")))
