"""Docstrings with `code` in single backticks, as reStructuredText."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

import arkml
from arkml import errors

_NAME = re.compile(r"[A-Za-z_][\w.]*(\(\))?")
_ERRORS = [
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, arkml.ArkmlError)
]
_ERROR = re.compile(rf"\b({'|'.join(_ERRORS)})\b")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", _convert)
    return {"parallel_read_safe": True}


def _convert(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Make references of names in backticks, and literals of other code and indented blocks."""
    blocks = re.split(r"\n\n+", "\n".join(lines).rstrip())
    converted = [f"::\n\n{one}" if one.startswith("    ") else _prose(one) for one in blocks]
    lines[:] = [*"\n\n".join(converted).split("\n"), ""]


def _prose(block: str) -> str:
    pieces = re.split(r"(``[^`]+``|`[^`]+`)", block)
    return "".join(_code(one) if one.startswith("`") else _plain(one) for one in pieces)


def _code(piece: str) -> str:
    inside = " ".join(piece.strip("`").split())
    if inside in arkml.__all__:
        return f":py:obj:`~arkml.{inside}`"
    return f":py:obj:`{inside}`" if _NAME.fullmatch(inside) else f"``{inside}``"


def _plain(piece: str) -> str:
    """Escape what reStructuredText takes for markup, and make references of errors."""
    escaped = re.sub(r"([*|]|\w_(?!\w))", lambda match: match[0][:-1] + "\\" + match[0][-1], piece)
    return _ERROR.sub(r":py:obj:`~arkml.errors.\1`", escaped)
