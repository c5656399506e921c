"""
The games of the arcade, fetched and built into guests under build/arcade, with a table of them.

    python -m tools.arcade                    all games
    python -m tools.arcade --only squared     one of them; may be given several times
    python -m tools.arcade --json             the table as JSON

Exits with 0 if all were built, with 1 if some were not, with 2 if none could be.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from arkml.cli.exits import FAILED, GOOD, UNUSABLE, print_error, print_json
from arkml.cli.tables import grid, show
from arkml.cli.units import size
from tools.arcade import compiler
from tools.arcade.sources import PINS, UNPACKED, ArcadeError, sources
from tools.arcade.trial import Facts, tried

BUILT = compiler.ROOT / "build" / "arcade"


def games() -> dict[str, Path]:
    """Return the sources of the games by name."""
    found = [*compiler.GAMES.glob("*.c"), *compiler.GAMES.glob("*.cpp")]
    return {path.stem: path for path in sorted(found)}


def build(wanted: Mapping[str, Path], folder: Path) -> dict[str, Facts]:
    """Build the games that are not up to date, side by side, and return the facts of all."""
    version = compiler.check()
    folder.mkdir(parents=True, exist_ok=True)
    unpacked = folder / UNPACKED
    if any(compiler.needs_archive(path) for path in wanted.values()):
        sources(folder)
    pins = PINS.read_text(encoding="utf-8")
    keys = {name: compiler.key(path, version + pins) for name, path in wanted.items()}
    found = {name: _kept(folder / f"{name}.json", keys[name]) for name in wanted}
    stale = [name for name, facts in found.items() if facts is None]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = pool.map(
            lambda name: compiler.build(wanted[name], unpacked, folder / f"{name}.wasm"), stale
        )
        for name, error in zip(stale, errors, strict=True):
            facts = Facts(error=error) if error else tried(folder / f"{name}.wasm")
            found[name] = facts
            _keep(folder / f"{name}.json", keys[name], facts)
    return {name: facts for name, facts in found.items() if facts is not None}


def _kept(path: Path, key: str) -> Facts | None:
    """Return the facts of an earlier build, unless something has changed since then."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # never built, or interrupted while it was written
        return None
    if document.pop("key") != key or not path.with_suffix(".wasm").is_file():
        return None
    document["imports"] = tuple(document["imports"])
    return Facts(**document)


def _keep(path: Path, key: str, facts: Facts) -> None:
    """Write the facts of a build that succeeded beside its guest."""
    if not facts.error:
        text = json.dumps({"key": key, **asdict(facts)}, indent=1)
        path.write_text(text + "\n", encoding="utf-8")


def main(arguments: Sequence[str], folder: Path = BUILT) -> int:
    """Run the command line. Returns the exit status."""
    options = _options(arguments)
    known = games()
    wanted = {name: known[name] for name in sorted(set(options.only or known))}
    try:
        found = build(wanted, folder)
    except ArcadeError as error:
        print_error(str(error))
        return UNUSABLE
    if options.as_json:
        print_json({"games": {name: asdict(facts) for name, facts in found.items()}})
    else:
        _print(found)
    return FAILED if any(facts.error for facts in found.values()) else GOOD


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.arcade", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", action="append", choices=list(games()), metavar="NAME")
    parser.add_argument("--json", action="store_true", dest="as_json")
    return parser.parse_args(arguments)


def _print(found: Mapping[str, Facts]) -> None:
    header = ("game", "", "size", "imports", "agents", "observation", "actions")
    show("The arcade", grid(header, [(name, *_cells(facts)) for name, facts in found.items()]))
    count = sum(not facts.error for facts in found.values())
    sys.stdout.write(f"{count} of {len(found)} games built into build/arcade\n")


def _cells(facts: Facts) -> tuple[str, ...]:
    if facts.error:
        return (facts.error,)
    imports = ", ".join(facts.imports) or "arkml's"
    return ("built", size(facts.size), imports, str(facts.agents), facts.observation, facts.actions)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
