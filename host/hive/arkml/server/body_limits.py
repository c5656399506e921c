"""Limits of the bodies that a hive receives: their time, and the bytes of all together."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arkml.errors import HiveRefused
from arkml.server.options import ServerLimits

_FREE = 64 << 10
"""Bytes of each body that do not count, so that small requests are never refused for large ones."""

_TIMED_OUT = 408


class BodyLimits:
    """
    ASGI middleware that refuses bodies which arrive too slowly, or are too many at one time.

    The refusal is raised where `app` receives the body: HiveRefused with status 408 or 503.
    """

    def __init__(self, app: ASGIApp, limits: ServerLimits) -> None:
        self._app = app
        self._limits = limits
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _has_body(scope):
            await self._app(scope, receive, send)
            return
        body = _Body(self, receive, send, self._limits)
        try:
            await self._app(scope, body.receive, body.send)
        finally:
            self._held -= body.counted

    def count(self, size: int) -> None:
        """Count bytes that are held from now on. Raises HiveRefused if they are too many."""
        most = self._limits.body_bytes
        if most and self._held + size > most:
            raise HiveRefused(
                f"this hive receives {self._held} bytes of other requests, and holds {most} at"
                " most: send this request again",
                503,
            )
        self._held += size


class _Body:
    """The body of one request; `counted` of its bytes are counted as held."""

    def __init__(
        self, owner: BodyLimits, receive: Receive, send: Send, limits: ServerLimits
    ) -> None:
        self.counted = 0
        self._owner = owner
        self._receive = receive
        self._send = send
        self._seconds = limits.body_seconds
        self._rate = limits.body_rate
        self._began = 0.0
        self._size = 0
        self._is_complete = False

    async def receive(self) -> Message:
        """Return the next part of the body. Raises HiveRefused if it is late or too large."""
        if self._is_complete:
            return await self._receive()
        message = await self._next()
        self._size += len(message.get("body", b""))
        self._is_complete = not message.get("more_body", False)
        uncounted = self._size - _FREE - self.counted
        if uncounted > 0:
            self._owner.count(uncounted)
            self.counted += uncounted
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer, after which a body that came too late is not awaited."""
        if message["type"] == "http.response.start" and message["status"] == _TIMED_OUT:
            message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        await self._send(message)

    async def _next(self) -> Message:
        if not self._seconds:
            return await self._receive()
        now = asyncio.get_running_loop().time()
        self._began = self._began or now
        until = now + self._seconds
        if self._rate:
            until = min(until, self._began + self._seconds + self._size / self._rate)
        try:
            async with asyncio.timeout_at(until):
                return await self._receive()
        except TimeoutError:
            waited = asyncio.get_running_loop().time() - self._began
            raise HiveRefused(
                f"{self._size} bytes of the body arrived within {waited:.0f} s: it may pause for"
                f" less than {self._seconds:g} s, and arrives at {self._rate} bytes a second",
                _TIMED_OUT,
            ) from None


def _has_body(scope: Scope) -> bool:
    """Return whether a request announces a body."""
    for name, value in scope["headers"]:
        if name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
            return True
    return False
