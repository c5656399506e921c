"""Admission of requests by their Host header and their token."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence

from starlette.requests import cookie_parser
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from arkml.loopback import HostRule
from arkml.server.errors import sentence
from arkml.server.one_time import PageSessions
from arkml.server.worker_tokens import SCOPE_KEY, WorkerTokens

OPEN_PATH = "/v1/health"
_DATA = "/v1/"
_FOREIGN = "a hive does not answer web pages of others"


class TokenAuth:
    """
    ASGI middleware that passes requests with the token on to `app`, all of them without a token.

    Requests with a token of `workers` pass, too, with its grant in their scope: the routes decide
    which of them they answer.
    Requests for other names than `HostRule` has for `host` and `allowed` are refused, and without a
    token those of web pages, which have an Origin header.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str,
        host: str,
        allowed: Sequence[str],
        workers: WorkerTokens,
        sessions: PageSessions,
    ) -> None:
        self._app = app
        self._workers = workers
        self._sessions = sessions
        self._expected = f"Bearer {token}".encode() if token else b""
        self._hosts = HostRule(host, allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._refusal(scope) if scope["type"] == "http" else None
        if answer is None:
            await self._app(scope, receive, send)
        else:
            await answer(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = dict(scope["headers"])
        refused = self._hosts.refused(scope["headers"])
        if refused is not None:
            return sentence(
                f"this hive does not answer requests for {refused!r}: --allow-host adds a name"
                " besides localhost",
                403,
            )
        if scope["path"] == OPEN_PATH:
            return None
        is_page = _is_own_page(scope["method"], headers)
        if not scope["path"].startswith(_DATA):
            is_file = scope["method"] in ("GET", "HEAD")
            return None if is_page or is_file else sentence(_FOREIGN, 403)
        token = headers.get(b"authorization", b"")
        worker = self._workers.find(token.removeprefix(b"Bearer "))
        if worker is not None:
            scope[SCOPE_KEY] = worker
            return None
        if self._expected and hmac.compare_digest(token, self._expected):
            return None
        if self._expected and not (is_page and self._has_session(scope, headers)):
            return sentence("the token of the hive is missing or wrong", 401)
        return None if is_page else sentence(_FOREIGN, 403)

    def _has_session(self, scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
        cookies = cookie_parser(headers.get(b"cookie", b"").decode("latin-1"))
        return self._sessions.is_open(cookies.get(cookie_name(scope), ""))


def cookie_name(scope: Scope) -> str:
    """Return the name of the cookie of a session: browsers keep one jar for all ports."""
    _, port = scope.get("server") or ("", 0)
    return f"arkml-{port}"


def _is_own_page(method: str, headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a request is of this hive's page, or of a program; not of another page."""
    site, origin = headers.get(b"sec-fetch-site", b""), headers.get(b"origin")
    if site:
        is_same = site in (b"same-origin", b"none")
    else:
        is_same = origin is None or origin.partition(b"://")[2] == headers.get(b"host")
    is_of_browser = bool(site) or origin is not None
    is_change = is_of_browser and method not in ("GET", "HEAD")
    return is_same and (not is_change or headers.get(b"x-arkml") == b"1")
