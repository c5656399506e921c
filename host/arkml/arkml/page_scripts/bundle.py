"""Joining of JavaScript modules into one text, for pages that are a single file."""

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
    Return a JavaScript module with all modules that it imports as one module without imports.

    The modules must import names unchanged, only from each other, and export declarations; all
    top-level names must differ. Modules of another folder refer to `FOLDER` as `shared/`, as pages
    do.
    """
    texts: dict[str, str] = {}
    _add(folder / name, texts)
    return "\n".join(texts.values())


def bundled_script(name: str, folder: Path = FOLDER) -> str:
    """
    Return the result of `bundled` as a classic script, for pages that are opened from a disk.

    From a disk browsers load scripts, but not modules. The modules must have no top-level await,
    and no strings of several lines. Comments on lines of their own, indents and empty lines are
    left out.
    """
    text = _INDENT.sub("", _COMMENT.sub("", bundled(name, folder)))
    return f'(() => {{\n"use strict";\n{text}}})();\n'


def _add(path: Path, texts: dict[str, str]) -> None:
    """Add the text of a module after the texts of the modules that it imports."""
    if path.name in texts:
        return
    text = path.read_text(encoding="utf-8")
    for needed in _IMPORT.findall(text):
        shared = needed.removeprefix("shared/")
        _add(path.with_name(needed) if shared == needed else FOLDER / shared, texts)
    texts[path.name] = _EXPORT.sub("", _IMPORT.sub("", text))
