"""Addresses of hives, as users give them: HOST, HOST:PORT or a URL."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import urlsplit

from arkml.base.short_reprs import cut_repr
from arkml.errors import UsageError
from arkml.hive.protocol.runs import DEFAULT_PORT

_PORTS: Final = {"http": 80, "https": 443}
LAST_PORT: Final = 0xFFFF
_HOST: Final = re.compile(r"[^\s/?#@\[\]\\]+")


@dataclass(frozen=True, slots=True)
class Address:
    """
    The address of a hive, and the token for requests to it.

    Attributes:
        host: Host name or IP address.
        port: Port.
        token: The token, None to send none.
        is_secure: True to use TLS.
        prefix: The path below which a proxy serves the hive, such as "/arkml"; or empty.

    """

    host: str
    port: int = DEFAULT_PORT
    token: str | None = field(default=None, repr=False)
    is_secure: bool = False
    prefix: str = ""

    @classmethod
    def parse(cls, text: str, token: str | None = None) -> Address:
        """
        Return the address in "HOST", "HOST:PORT" or "https://HOST:PORT/PREFIX".

        The default port is 12356; in a URL it is the scheme's, such as 443. Raises UsageError.
        """
        address = _from_url(text) if "://" in text else _from_pair(text)
        if address is None:
            apart = "; a token is given apart from it" if "@" in text else ""
            raise UsageError(
                f"{cut_repr(_without_secret(text))} is not an address of a hive: HOST:PORT, such as"
                f" localhost:12356, or a URL, such as https://hive.example/arkml{apart}"
            )
        return replace(address, token=token)

    @property
    def authority(self) -> str:
        """Host and port, for example "localhost:12356" or "[::1]:12356"."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL of the hive, such as "https://hive.example:443/arkml"."""
        scheme = "https" if self.is_secure else "http"
        return f"{scheme}://{self.authority}{self.prefix}"

    def __str__(self) -> str:
        """Return the address in the shortest form that `parse` accepts."""
        return self.url if self.is_secure or self.prefix else self.authority


def _without_secret(text: str) -> str:
    """Return text without the part before an @, which may be a password or a token."""
    scheme, slashes, rest = text.rpartition("://")
    _, at, place = rest.rpartition("@")
    return f"{scheme}{slashes}…@{place}" if at else text


def _from_pair(text: str) -> Address | None:
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    is_port = port.isdecimal() and 0 < int(port) <= LAST_PORT
    return Address(host, int(port)) if _HOST.fullmatch(host) and is_port else None


def _from_url(text: str) -> Address | None:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    is_whole = host and parts.scheme in _PORTS and _HOST.fullmatch(host)
    is_plain = "@" not in parts.netloc and not parts.query and not parts.fragment
    if not (is_whole and is_plain and port != 0):
        return None
    prefix = parts.path.rstrip("/")
    if any(part in ("", ".", "..") for part in prefix.split("/")[1:]):
        return None
    return Address(
        str(host),
        port or _PORTS[parts.scheme],
        is_secure=parts.scheme == "https",
        prefix=prefix,
    )
