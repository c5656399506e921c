"""Modules of JavaScript joined into one text, for pages that are one file."""

from __future__ import annotations

import re
from pathlib import Path

from arkml.page_scripts import FOLDER

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./((?:shared/)?\w+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:class|const|function) )", re.MULTILINE)

_COMMENT = re.compile(r"^[ \t]*(?://.*|/\*\*(?:[^*]|\*(?!/))*\*/)\n", re.MULTILINE)
_INDENT = re.compile(r"^\s+", re.MULTILINE)


def bundled(name: str, folder: Path = FOLDER) -> str:
    """
    Return a module of a folder and all that it imports as one module without imports.

    Its modules import names as they are, from each other only, and export declarations; the names
    at the top of all of them differ. Those of another folder than `FOLDER` have `FOLDER` as
    `shared/`, as pages have.
    """
    texts: dict[str, str] = {}
    _add(folder / name, texts)
    return "\n".join(texts.values())


def bundled_script(name: str, folder: Path = FOLDER) -> str:
    """
    Return the same as a script that is no module, for pages that are opened from a disk.

    There browsers load scripts, and no modules. None of the modules waits at its top, or has a text
    of several lines. Comments on lines of their own, indents and empty lines are left out.
    """
    text = _INDENT.sub("", _COMMENT.sub("", bundled(name, folder)))
    return f'(() => {{\n"use strict";\n{text}}})();\n'


def _add(path: Path, texts: dict[str, str]) -> None:
    """Add the text of a module after the texts of those that it imports."""
    if path.name in texts:
        return
    text = path.read_text(encoding="utf-8")
    for needed in _IMPORT.findall(text):
        shared = needed.removeprefix("shared/")
        _add(path.with_name(needed) if shared == needed else FOLDER / shared, texts)
    texts[path.name] = _EXPORT.sub("", _IMPORT.sub("", text))
