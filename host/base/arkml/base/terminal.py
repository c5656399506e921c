"""Sanitizing of untrusted text for terminals."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import chain

# Kept: tab and line feed. Escaped, so that a reader sees the attempt: escape, the C1 controls,
# line and paragraph separators, and characters that reorder or hide text. Other controls are
# removed.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
_PLANES = (range(0x10000), range(0xE0000, 0xE0080))


def harmless(text: str) -> str:
    """Return `text` without control characters and characters that hide or reorder text."""
    return text.translate(_replacements()) if _UNSAFE.search(text) else text


def listed(names: Iterable[str], otherwise: str = "none") -> str:
    """Return names, sorted, as a list for a sentence; names with invisible letters are quoted."""
    shown = (
        name if name.isprintable() and name.strip() == name != "" else repr(name)
        for name in sorted(names)
    )
    return harmless(", ".join(shown)) or otherwise


@cache
def _replacements() -> dict[int, str]:
    """Return the replacement of each unsafe character; a table is ten times as fast as a call."""
    characters = "".join(map(chr, chain.from_iterable(_PLANES)))
    return {ord(unsafe): _escaped(ord(unsafe)) for unsafe in _UNSAFE.findall(characters)}


def _escaped(character: int) -> str:
    if character == 0x1B or 0x80 <= character <= 0x9F:
        return f"\\x{character:02x}"
    if character < 0x80:
        return ""
    return f"\\u{character:04x}" if character <= 0xFFFF else f"\\U{character:08x}"
