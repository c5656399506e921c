"""Admission of requests to a web port, by the headers Host and Origin and the token in the path."""

from __future__ import annotations

import re
from typing import Any, Final

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arkml.trials.server.web.access import Access, Grant
from arkml.trials.server.web.connections import SAFETY
from arkml.trials.server.web.frames import CallRefused, CallStatus

_GRANT: Final = "arkml.trials.grant"
_TOKEN_PATH: Final = re.compile(r"/j/([^/]*)(/.*)?")
_ANSWERS: Final = ("http.response.start", "websocket.http.response.start", "websocket.accept")
_PREFLIGHT: Final = {
    "access-control-allow-methods": "POST",
    "access-control-allow-headers": "content-type, x-grpc-web, x-user-agent, trial-id, user-id",
    "access-control-max-age": "600",
}
_MOST_SHOWN: Final = 200


class Gate:
    """
    ASGI middleware that passes admitted requests to `app`, with the rights of their client.

    The token is removed from the path. Requests with a Host or Origin that is not allowed get the
    status 403. Requests without a valid token pass without rights: their calls are then refused in
    gRPC's way, which clients can read.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        origins = _values(scope, b"origin")
        extra = dict(SAFETY)
        if len(origins) == 1 and self._access.is_elsewhere(origins[0]):
            extra["access-control-allow-origin"] = origins[0]
            extra["access-control-expose-headers"] = "grpc-status, grpc-message"
            extra["vary"] = "origin"

        async def send_with_headers(message: Message) -> None:
            if message["type"] in _ANSWERS:
                message.setdefault("headers", [])
                MutableHeaders(scope=message).update(extra)
            await send(message)

        self._take_token(scope)
        answer = self._answer(scope, origins) or self._app
        await answer(scope, receive, send_with_headers)

    def _answer(self, scope: Scope, origins: list[str]) -> Response | None:
        refused = self._access.hosts.refused(scope["headers"])
        if refused is not None:
            return _refusal(
                f"this server does not answer requests for {refused!r}: --allow-host adds a name"
                " besides localhost"
            )
        if not self._access.admits_origin(scope["scheme"], _values(scope, b"host"), origins):
            shown = ", ".join(origins)[:_MOST_SHOWN]
            return _refusal(f"pages of {shown!r} may not use this server: --allow-origin allows it")
        if scope["type"] == "http" and scope["method"] == "OPTIONS":
            if origins and self._access.is_elsewhere(origins[0]):
                return Response(status_code=204, headers=_PREFLIGHT)
            return _refusal("only pages of other origins that are allowed ask for permission")
        return None

    def _take_token(self, scope: Scope) -> None:
        """Remove the token from the path, in place, as the server logs this scope."""
        match = _TOKEN_PATH.fullmatch(scope["path"])
        if match is not None:
            scope["path"] = match[2] or "/"
            scope["raw_path"] = scope["path"].encode()
        scope[_GRANT] = self._access.grant(match[1] if match is not None else None)


def grant_in(scope: Any) -> Grant:
    """Return the rights of the client of a call. Raises CallRefused without a valid token."""
    grant: Grant | None = scope[_GRANT]
    if grant is None:
        raise CallRefused(
            "the token of this address is missing or wrong, or its trial has ended: the address"
            " has the form http://HOST:PORT/j/TOKEN",
            CallStatus.UNAUTHENTICATED,
        )
    return grant


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _refusal(text: str) -> Response:
    return PlainTextResponse(text + "\n", status_code=403)
