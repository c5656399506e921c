"""Admission of requests by their Host header and their token."""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from ipaddress import ip_address

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from arkml.server.errors import sentence
from arkml.server.worker_tokens import SCOPE_KEY, WorkerTokens

OPEN_PATH = "/v1/health"

_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/?#@\[\]]+))(?::\d*)?")


class TokenAuth:
    """
    ASGI middleware that passes requests with the token on to `app`, all of them without a token.

    Requests with a token of `workers` pass, too, with its grant in their scope: the routes decide
    which of them they answer.
    At a loopback address only requests for a loopback name or one of the `allowed` names pass,
    since a web page may have its own name resolve to that address. At another address requests for
    any name pass, unless there are `allowed` names. Without a token requests of web pages, which
    have an Origin header, are refused.
    """

    def __init__(
        self, app: ASGIApp, token: str, host: str, allowed: Sequence[str], workers: WorkerTokens
    ) -> None:
        self._app = app
        self._workers = workers
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
            names = [value.decode("latin-1") for key, value in scope["headers"] if key == b"host"]
            if not names or not all(self._answers_to(name) for name in names):
                return sentence(
                    f"this hive does not answer requests for {', '.join(names)[:200]!r}:"
                    " --allow-host adds a name besides localhost",
                    403,
                )
        if scope["path"] == OPEN_PATH:
            return None
        token = headers.get(b"authorization", b"")
        worker = self._workers.find(token.removeprefix(b"Bearer "))
        if worker is not None:
            scope[SCOPE_KEY] = worker
            return None
        if self._expected and not hmac.compare_digest(token, self._expected):
            return sentence("the token of the hive is missing or wrong", 401)
        if not self._expected and b"origin" in headers:
            return sentence("a hive without a token does not answer web pages", 403)
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
    match = _AUTHORITY.fullmatch(authority)
    return (match[1] or match[2]).lower() if match else ""
