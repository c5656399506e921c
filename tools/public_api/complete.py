"""Asks pyright whether the types of all public names are known; prints those that are not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import griffe
from tools.houses import merge
from tools.public_api.generate import ROOT, loaded, members_of, public_objects

FOREIGN = (
    "arkml.envs.gymnasium_", "arkml.envs.pettingzoo_env", "arkml.envs.vector_env", "arkml.envs.sb3",
    "arkml.envs.llapi.envs", "arkml.hive.protocol.settings",
)  # fmt: skip
"""Modules whose classes derive from Gymnasium's, PettingZoo's, SB3's or msgspec's, half typed."""


def public_paths() -> dict[str, str]:
    """Return the public names, members too, by the path where each is defined."""
    found: dict[str, str] = {}
    for name, item in public_objects(loaded()):
        if item.path.startswith(FOREIGN):
            continue
        found.setdefault(item.path, name)
        if isinstance(item, griffe.Class):
            for key, member in members_of(name, item).items():
                found.setdefault(member.path, f"{name}.{key}")
    return found


def symbols() -> list[Mapping[str, Any]]:
    """Return what pyright says of the names of the package."""
    with tempfile.TemporaryDirectory() as merged:  # it does not look for parts of a package
        merge(Path(merged))
        run = subprocess.run(
            [sys.executable, "-m", "basedpyright", "--verifytypes", "arkml", "--ignoreexternal",
             "--outputjson", "--pythonpath", sys.executable],
            cwd=ROOT, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": merged},
        )  # fmt: skip
    found: list[Mapping[str, Any]] = json.loads(run.stdout)["typeCompleteness"]["symbols"]
    return found


def reasons(symbol: Mapping[str, Any]) -> list[str]:
    """
    Return why the type of a symbol is not known by itself.

    A class is "partially unknown" to pyright for any attribute, public or not, and so is all that
    takes or returns it: that does not count unless the type that is shown has an Unknown.
    """
    messages = [item["message"].replace("\n", " ") for item in symbol["diagnostics"]]
    return [
        message
        for message in messages
        if "Unknown" in message or not ("partially unknown" in message or "No docstring" in message)
    ]


def main() -> int:
    """Print the public names whose types are not known; return 1 if there are any."""
    public = public_paths()
    known = {symbol["name"]: symbol for symbol in symbols()}
    checked = public.keys() & known.keys()
    wrong = {public[path]: why for path in checked if (why := reasons(known[path]))}
    for name, why in sorted(wrong.items()):
        sys.stdout.write(f"{name}: {'; '.join(why)}\n")
    sys.stdout.write(f"{len(checked)} public names, {len(wrong)} without a complete type\n")
    return 1 if wrong or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
