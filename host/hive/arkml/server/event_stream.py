"""A stream of server-sent events, which ends with its client and the token of its caller."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from arkml.server.access.callers import CALLER, until_invalid

EVENT_STREAM = "text/event-stream"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),
]


class EventStream(Response):
    """A response that streams the chunks of a generator, and closes the generator at its end."""

    def __init__(self, begin: Callable[[], AsyncGenerator[bytes, None]]) -> None:
        super().__init__()
        self._begin = begin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        sending = asyncio.ensure_future(self._send(send))
        ends = [asyncio.ensure_future(one) for one in (_left(receive), _expired(scope))]
        try:
            await asyncio.wait([sending, *ends], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, *ends):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await sending
        with contextlib.suppress(OSError):
            await send({"type": "http.response.body", "body": b""})

    async def _send(self, send: Send) -> None:
        async with contextlib.aclosing(self._begin()) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _expired(scope: Scope) -> None:
    """Wait until the caller may not be answered any more."""
    await until_invalid(scope[CALLER])


async def _left(receive: Receive) -> None:
    """Wait until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
