"""Admission of requests, by the name that they ask for and by their token."""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from ipaddress import ip_address

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from arkml.server.errors import sentence

OPEN_PATH = "/v1/health"

_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/?#@\[\]]+))(?::\d*)?")


class TokenAuth:
    """
    Lets requests with the token through to `app`, or all of them if there is none.

    A hive at a loopback address answers only requests for a loopback name or one of `allowed`: a
    page in a browser may give its own name that address. One at another address answers requests
    for any name unless some are `allowed`. Without a token, pages in a browser are kept out: they
    say where they come from.
    """

    def __init__(self, app: ASGIApp, token: str, host: str, allowed: Sequence[str]) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode() if token else b""
        self._names: frozenset[str] | None = None
        if allowed or is_loopback(host):
            self._names = frozenset(_name_in(one) or one.lower() for one in (host, *allowed))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._refusal(scope) if scope["type"] == "http" else None
        if answer is None:
            await self._app(scope, receive, send)
        else:
            await answer(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = dict(scope["headers"])
        if self._names is not None:
            asked = [value.decode("latin-1") for key, value in scope["headers"] if key == b"host"]
            if not asked or not all(self._answers_to(one) for one in asked):
                return sentence(
                    f"this hive does not answer requests for {', '.join(asked)[:200]!r}:"
                    " --allow-host names what it is called besides localhost",
                    403,
                )
        if scope["path"] == OPEN_PATH:
            return None
        given = headers.get(b"authorization", b"")
        if self._expected and not hmac.compare_digest(given, self._expected):
            return sentence("the token of the hive is missing or wrong", 401)
        if not self._expected and b"origin" in headers:
            return sentence("a hive without a token answers no web pages", 403)
        return None

    def _answers_to(self, authority: str) -> bool:
        assert self._names is not None
        name = _name_in(authority)
        return name in self._names or is_loopback(name)


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is that of this machine for itself."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _name_in(authority: str) -> str:
    """Return the host in HOST or HOST:PORT, in lower case; empty if it is neither."""
    found = _AUTHORITY.fullmatch(authority)
    return (found[1] or found[2]).lower() if found else ""
