"""Who may ask."""

from __future__ import annotations

import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from arkml.server.errors import sentence

OPEN_PATH = "/v1/health"


class Gate:
    """
    Lets requests with the token through to `app`, or all of them if there is none.

    Without a token, pages in a browser are kept out: they say where they come from.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode() if token else b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != OPEN_PATH:
            headers = dict(scope["headers"])
            given = headers.get(b"authorization", b"")
            if self._expected and not hmac.compare_digest(given, self._expected):
                answer = sentence("the token of the hive is missing or wrong", 401)
                await answer(scope, receive, send)
                return
            if not self._expected and b"origin" in headers:
                answer = sentence("a hive without a token answers no web pages", 403)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)
