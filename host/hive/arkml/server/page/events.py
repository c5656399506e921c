"""`GET /v1/events`: the changes of a hive as server-sent events, one stream for a page."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from arkml.errors import HiveRefused
from arkml.server.access.callers import AccessRole, caller_in, until_invalid
from arkml.server.page.feed import Feed, parts

EVENTS_PATH = "/v1/events"
MAX_RUNS = 64

_LAST = "last-event-id"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),
]


class EventStreams:
    """
    The ASGI application of streams: `?runs=ID,ID` names the runs whose metrics a page shows.

    The header Last-Event-ID is the number of the last event that a page has received; a page that
    closed its stream itself sends the parameter `last_event_id` instead. A token of the role `act`
    gets the events of the runs that it started. A stream ends with its client, its token and the
    hive.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, caller = Request(scope, receive), caller_in(scope)
        caller.require(AccessRole.ACT, "GET", EVENTS_PATH)
        runs, last = frozenset(parts(request.query_params.get("runs", ""))), _number(request)
        if len(runs) > MAX_RUNS:
            raise HiveRefused(f"{len(runs)} runs in one stream: {MAX_RUNS} at most", 422)
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        owner = None if caller.sees_all else caller.owner
        sending = asyncio.ensure_future(self._send(runs, last, owner, send))
        ends = [asyncio.ensure_future(one) for one in (_left(receive), until_invalid(caller))]
        try:
            await asyncio.wait([sending, *ends], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, *ends):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await sending
        with contextlib.suppress(OSError):
            await send({"type": "http.response.body", "body": b""})

    async def _send(
        self, runs: frozenset[str], last: int | None, owner: str | None, send: Send
    ) -> None:
        async with contextlib.aclosing(self._feed.stream(runs, last, owner)) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _left(receive: Receive) -> None:
    """Wait until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _number(request: Request) -> int | None:
    """Return the number of the last event that a page has got. Raises HiveRefused."""
    text = request.headers.get(_LAST) or request.query_params.get("last_event_id", "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise HiveRefused(f"Last-Event-ID is {text[:40]!r}: it takes the number of an event", 422)
    return int(text)
