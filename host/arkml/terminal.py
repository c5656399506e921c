"""Sanitizing of untrusted text for terminals."""

from __future__ import annotations

import re

# Kept: tab and line feed. Escaped, so that a reader sees the attempt: escape, the C1 controls,
# line and paragraph separators, and characters that reorder or hide text. Other controls are
# removed.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def harmless(text: str) -> str:
    """Return `text` without controls and characters that hide or reorder text."""
    return _UNSAFE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    character = ord(match.group())
    if character == 0x1B or 0x80 <= character <= 0x9F:
        return f"\\x{character:02x}"
    if character < 0x80:
        return ""
    return f"\\u{character:04x}" if character <= 0xFFFF else f"\\U{character:08x}"
