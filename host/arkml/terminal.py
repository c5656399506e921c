"""Text of strangers, made harmless for terminals."""

from __future__ import annotations

import re

# Kept: tab and line feed. Written out, so that a reader sees the attempt: escape, the C1 controls,
# line and paragraph separators, and what reorders or hides text. Other controls go.
_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def harmless(text: str) -> str:
    """`text` without anything that a terminal obeys or that hides or reorders what it says."""
    return _ODD.sub(_written_out, text)


def _written_out(match: re.Match[str]) -> str:
    character = ord(match.group())
    if character == 0x1B or 0x80 <= character <= 0x9F:
        return f"\\x{character:02x}"
    if character < 0x80:
        return ""
    return f"\\u{character:04x}" if character <= 0xFFFF else f"\\U{character:08x}"
