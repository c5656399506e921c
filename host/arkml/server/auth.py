"""Admission of requests by their Host header and their token."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from arkml.loopback import HostRule
from arkml.server.errors import sentence
from arkml.server.worker_tokens import SCOPE_KEY, WorkerTokens

OPEN_PATH = "/v1/health"
OPEN_PATHS = (OPEN_PATH, "/healthz", "/readyz")
"""Paths that are answered without a token, which say next to nothing."""


class TokenAuth:
    """
    ASGI middleware that passes requests with the token on to `app`, all of them without a token.

    Requests with a token of `workers` pass, too, with its grant in their scope: the routes decide
    which of them they answer.
    Requests for other names than `HostRule` has for `host` and `allowed` are refused, and without a
    token those of web pages, which have an Origin header.
    """

    def __init__(
        self, app: ASGIApp, token: str, host: str, allowed: Sequence[str], workers: WorkerTokens
    ) -> None:
        self._app = app
        self._workers = workers
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
        if scope["path"] in OPEN_PATHS:
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
