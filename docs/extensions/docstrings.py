"""Docstrings with `code` in single backticks and Google's lists, as reStructuredText."""

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
_FIELDS = {"Args": "param", "Attributes": "ivar", "Raises": "raises"}
_ERROR = re.compile(rf"\b({'|'.join(_ERRORS)})\b")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", _convert)
    return {"parallel_read_safe": True}


def _convert(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Make references of names in backticks, and literals of other code and indented blocks."""
    blocks = re.split(r"\n\n+", "\n".join(lines).rstrip())
    lines[:] = [*"\n\n".join(map(_block, blocks)).split("\n"), ""]


def _block(block: str) -> str:
    title, _, rest = block.partition(":\n")
    if block.startswith("    "):
        return f"::\n\n{block}"
    if title == "Example":
        return f"Example::\n\n{rest}"
    if title == "Returns":
        return f":returns: {_prose(' '.join(rest.split()))}"
    if title in _FIELDS:
        return "\n".join(_field(_FIELDS[title], one) for one in re.split(r"\n    (?=\S)", rest))
    return _prose(block)


def _field(kind: str, item: str) -> str:
    """Return an item of a list, `name: text`, as a field."""
    name, _, text = " ".join(item.split()).partition(": ")
    return f":{kind} {_plain(name)}: {_prose(text)}"


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
