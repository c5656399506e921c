"""Generated files: those that are out of date, and the command line that writes or names them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple


class GeneratedFiles(NamedTuple):
    """
    The texts of generated files by their paths below `root`, with slashes.

    `present` are the paths of those that exist; they are removed where they have no text.
    """

    root: Path
    texts: Mapping[str, str]
    present: Iterable[str] = ()

    def stale(self) -> list[str]:
        """Return the paths that differ from their texts, are missing, or have no text."""
        paths = self.texts.keys() | set(self.present)
        return sorted(path for path in paths if self._read(path) != self.texts.get(path))

    def write(self) -> list[str]:
        """Bring the files up to date. Returns the paths that changed."""
        changed = self.stale()
        for path in changed:
            target = self.root / path
            if path in self.texts:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(self.texts[path], encoding="utf-8")
            else:
                target.unlink()
        return changed

    def _read(self, path: str) -> str | None:
        target = self.root / path
        return target.read_text(encoding="utf-8") if target.is_file() else None


def command(arguments: list[str], generate: Callable[[], Iterable[GeneratedFiles]]) -> int:
    """
    Write what is out of date, or name it with `--check`.

    Returns the exit status: 1 where files are out of date, 2 for other arguments.
    """
    if arguments not in ([], ["--check"]):
        sys.stderr.write(f"unknown arguments {arguments}: the only option is --check\n")
        return 2
    if not arguments:
        sys.stdout.writelines(f"wrote {path}\n" for one in generate() for path in one.write())
        return 0
    stale = [path for one in generate() for path in one.stale()]
    sys.stderr.writelines(f"{path} is out of date: run `make generate`\n" for path in stale)
    return 1 if stale else 0
