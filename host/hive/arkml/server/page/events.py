"""`GET /v1/events`: the changes of a hive as server-sent events, one stream for a page."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from arkml.errors import HiveRefused
from arkml.server.access.callers import CALLER, AccessRole, Caller
from arkml.server.event_stream import EventStream
from arkml.server.page.feed import Feed, parts

EVENTS_PATH = "/v1/events"
MAX_RUNS = 64

_LAST = "last-event-id"


class EventStreams:
    """
    The ASGI application of event streams: `?runs=ID,ID` names the runs whose metrics a page shows.

    The header Last-Event-ID is the number of the last event that a page has received; a page that
    closed its stream itself sends the parameter `last_event_id` instead. A token of the role `act`
    gets the events of the runs that it started. A stream ends when its client leaves, its token
    ends or the hive is closed.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        caller: Caller = scope[CALLER]
        caller.require(AccessRole.ACT, "GET", EVENTS_PATH)
        runs, last = frozenset(parts(request.query_params.get("runs", ""))), _number(request)
        if len(runs) > MAX_RUNS:
            raise HiveRefused(f"{len(runs)} runs in one stream: {MAX_RUNS} at most", 422)
        owner = None if caller.sees_all else caller.owner
        await EventStream(lambda: self._feed.stream(runs, last, owner))(scope, receive, send)


def _number(request: Request) -> int | None:
    """Return the number of the last event that a page has got. Raises HiveRefused."""
    text = request.headers.get(_LAST) or request.query_params.get("last_event_id", "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise HiveRefused(f"Last-Event-ID is {text[:40]!r}: it takes the number of an event", 422)
    return int(text)
