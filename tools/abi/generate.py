"""
The generator of the files derived from the tables; it writes them or checks that they are current.

    python -m tools.abi.generate            write the files, below the working directory
    python -m tools.abi.generate --check    exit with 1 and name the files that are out of date
"""

from __future__ import annotations

import sys
from pathlib import Path

from arkml.abi.catalog import APIS, FOREIGN
from tools.abi import assemblyscript, c, idle_policy, markdown, rust, wat
from tools.abi.text import NOTICE
from tools.generated_files import GeneratedFiles, command

_GUEST_ABI = "guest_abi"
_FOLDERS = (_GUEST_ABI, "docs/abi")


def derived() -> dict[str, str]:
    """Return the text of every generated file by its path relative to the repository."""
    return {
        **_under(f"{_GUEST_ABI}/c", c.headers(APIS)),
        **_under(f"{_GUEST_ABI}/rust", {"ark_abi.rs": rust.module(APIS)}),
        **_under(f"{_GUEST_ABI}/assemblyscript", assemblyscript.files(APIS)),
        **_under(f"{_GUEST_ABI}/wat", {"ark_imports.wat": wat.imports(APIS)}),
        **_under(_GUEST_ABI, idle_policy.files()),
        **_under("docs/abi", markdown.pages((*APIS, *FOREIGN))),
    }


def stale(root: Path) -> list[str]:
    """Return the paths that differ from the tables, and generated files without a table."""
    return _files(root).stale()


def write(root: Path) -> list[str]:
    """Bring the files under `root` up to date and return the paths that changed."""
    return _files(root).write()


def main(arguments: list[str]) -> int:
    """Run the command line and return its exit status."""
    return command(arguments, lambda: [_files(Path.cwd())])


def _files(root: Path) -> GeneratedFiles:
    return GeneratedFiles(root, derived(), _generated(root))


def _under(folder: str, texts: dict[str, str]) -> dict[str, str]:
    return {f"{folder}/{name}": text for name, text in texts.items()}


def _generated(root: Path) -> list[str]:
    """Return the files that carry the notice of a generated file on their first line."""
    files = [path for folder in _FOLDERS for path in sorted((root / folder).rglob("*.*"))]
    return [
        path.relative_to(root).as_posix()
        for path in files
        if path.is_file() and NOTICE in path.read_text().partition("\n")[0]
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
