"""Built games of the arcade, and what is asked of each."""

import json
import subprocess
import sys

from tools.arcade.__main__ import BUILT

from arkml import GuestEnv


def built(name):
    """The guest of a game."""
    path = BUILT / f"{name}.wasm"
    assert path.is_file(), f"{path} is not built: make arcade"
    return path


def require_smoke(game):
    """Have a game pass `arkml smoke`."""
    command = [sys.executable, "-m", "arkml", "smoke", "--json", str(game)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)

    assert json.loads(found.stdout)["passed"], found.stdout


def require_own_imports(game):
    """Have a game import nothing but our functions."""
    with GuestEnv(game, configure=(1, 0)) as environment:
        imports = {one.module for one in environment.module.info.imports}

    assert all(name.startswith("ark-") for name in imports)
