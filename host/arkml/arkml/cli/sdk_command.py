"""`arkml sdk`: shows where the headers and bindings for guests are installed."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from arkml.cli import options
from arkml.cli.exits import GOOD, print_json

_PACKAGE = Path(__file__).parents[1]
_FOLDERS = [root / "guest_abi" for root in (_PACKAGE, _PACKAGE.parents[2])]  # a clone has it at top
SDK = next((folder for folder in _FOLDERS if folder.is_dir()), _FOLDERS[0])
"""The folder with the headers and bindings for guests, a folder for each language."""

_EPILOG = options.epilog(
    "arkml sdk",
    "arkml sdk --path",
    notes="The README.md of the folder says how each language takes its files, for example"
    ' clang -I "$(arkml sdk --path)/c" ...',
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SdkOptions:
    """The options of `arkml sdk`."""

    path: Annotated[
        bool, typer.Option("--path", help="Print the path of the folder, nothing else.")
    ] = False
    as_json: options.Json = False


def register(app: typer.Typer) -> None:
    """Add the command `arkml sdk` to the application."""
    options.add_command(app, "sdk", SdkOptions, show_sdk, epilog=_EPILOG)


def show_sdk(options: SdkOptions) -> int:
    """Show the headers and bindings that guests are written with."""
    files = [path.relative_to(SDK).as_posix() for path in sorted(SDK.rglob("*")) if path.is_file()]
    if options.as_json:
        print_json({"path": str(SDK), "files": files})
    elif options.path:
        sys.stdout.write(f"{SDK}\n")
    else:
        sys.stdout.write(
            "".join(f"{line}\n" for line in (f"{SDK}:", *(f"  {one}" for one in files)))
        )
    return GOOD
