"""Headers that every answer carries, to limit the use that a browser may make of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

Headers = Mapping[bytes, bytes]

_ALWAYS: Final[Headers] = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
}

PAGE: Final[Headers] = {
    **_ALWAYS,
    b"cross-origin-opener-policy": b"same-origin",
    b"content-security-policy": (
        b"default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self';"
        b" img-src 'self' data: blob:; base-uri 'none'; form-action 'self';"
        b" frame-ancestors 'none'"
    ),
}
"""
The headers of files of the page. They hold no data, and say themselves how they are cached.

Images are its icon, and charts on their way to a file.
"""

DATA: Final[Headers] = {
    **_ALWAYS,
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"cache-control": b"no-store",
}
"""The headers of every other answer."""


def as_text(headers: Headers) -> str:
    """Return headers as text, a line for each, as HTTP/1.1 writes them."""
    return "".join(f"{name.decode()}: {value.decode()}\r\n" for name, value in headers.items())
