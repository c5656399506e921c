"""Documents in YAML of anchors, aliases, tags and odd scalars, and what holds for all of them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tests.fuzz.checks import bounded

from arkml.base.yaml_documents import MOST_VALUES, load_yaml

_MOST_MESSAGE = 500
_TYPES = ["int", "float", "bool", "null", "timestamp", "binary", "set", "omap", "pairs", "str", "x"]
_PARTS = [
    *(f"!!{name} " for name in _TYPES), *(f"&{name} " for name in "abc"),
    *(f"*{name} " for name in "abc"), "<<: ", "<<: [*a, *b]\n", "- ", "? ", ": ", "a: ", "\n",
    "\n  ",
    "[", "]", "{", "}", ", ", "| \n", "'", '"', "\\uD800", "\\x00", "%YAML 1.1\n", "---\n", "...\n",
    "1", "-1:59", "0x_", "1e400", ".inf", "2001-99-99", "2001-01-01T00:00:00+99:99", "=", "~", "#",
    "\t", "\x00", "\ufeff", "\u2028", "é", "&a [*a]", "!<tag:yaml.org,2002:int> ",
]  # fmt: skip

TEXTS = st.one_of(
    st.binary(max_size=200),
    st.lists(st.sampled_from(_PARTS), max_size=60).map(lambda parts: "".join(parts).encode()),
)


def check_yaml(data: bytes) -> None:
    """Load a document, which must be refused in a short sentence or have few values."""
    with bounded():
        try:
            document, message = load_yaml(data), ""
        except ValueError as error:
            document, message = None, str(error)
    assert _count(document) <= MOST_VALUES
    assert len(message) < _MOST_MESSAGE
    assert "\n" not in message


def _count(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_count, value.keys())) + sum(map(_count, value.values()))
    return 1 + sum(map(_count, value)) if isinstance(value, list | set | tuple) else 1
