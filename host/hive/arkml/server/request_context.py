"""
The requests to a hive: their ids, the fields that they add to log lines, counts and durations.
"""

from __future__ import annotations

import itertools
import re
import secrets
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable
from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)
"""Upper bounds of the durations that are counted together, in seconds; a policy waits for 20."""

UNROUTED = "other"
"""The route of a request that was refused before it had one, or asked for a path without one."""

SCOPE_KEY = "arkml.request_counts"

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
_ABANDONED = 499
"""The status of a request that got no answer, as nginx counts one whose client has left."""

_HEADER = b"x-request-id"
_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


@dataclass(slots=True)
class LogContext:
    """
    The fields that log lines of one task get, which works for a request or for a run.

    `session` is the index of a session in its run, None for none. Tasks that a request starts
    inherit its context, which adds nothing to lines once the request `is_over`.
    """

    request: bytes = b""
    run: str = ""
    session: int | None = None
    trace: str = ""
    is_over: bool = False

    def fields(self) -> dict[str, str | int]:
        """Return the known fields by name, in the order in which lines show them."""
        if self.is_over:
            return {}
        known: tuple[tuple[str, str | int | None], ...] = (
            ("run", self.run),
            ("session", self.session),
            ("request", self.request.decode("ascii", "replace")),
            ("trace", self.trace),
        )
        return {name: value for name, value in known if value is not None and value != ""}


_current: ContextVar[LogContext | None] = ContextVar("arkml_log_context", default=None)


def begin_run(run: str) -> None:
    """
    Begin to add the id of a run to the log lines of the present task, which works for it alone.
    """
    _current.set(LogContext(run=run))


def note_session(run: str, session: int | None = None) -> None:
    """Add a run, and the index of a session in it, to the log lines of the present request."""
    context = _current.get()
    if context is not None:
        context.run, context.session = run, session


def note_trace(trace: str) -> None:
    """Add the id of a trace, 32 hexadecimal digits, to the log lines of the present request."""
    context = _current.get()
    if context is not None:
        context.trace = trace


def known_fields() -> dict[str, str | int]:
    """Return the run, session, request and trace of the present task by name, if they are known."""
    context = _current.get()
    return {} if context is None else context.fields()


class Durations:
    """
    The durations of the requests of one route and method.

    `counts[i]` counts durations above BOUNDS[i - 1] and up to BOUNDS[i]; the last count has all
    durations above the largest bound.
    """

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count a request that took `seconds`."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds


class RequestCounts:
    """
    ASGI middleware that counts requests by route, method and status, and gives each an id.

    A path counts as the template of its route, such as `/runs/{run_id}`, so the number of series is
    bounded. The id of a request is its header X-Request-Id if that has up to 64 letters, digits,
    dots, dashes and underscores, and else a new one; the answer repeats it. Each request finds the
    middleware in its scope under SCOPE_KEY.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        """The number of answered requests by method, route and status."""
        self.durations: dict[tuple[str, str], Durations] = {}
        """By method and route."""
        self.in_flight = 0
        self._app = app
        self._prefix = secrets.token_hex(4)
        self._numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = perf_counter(), _ABANDONED
        request = self._id_of(scope)
        scope[SCOPE_KEY] = self
        context = LogContext(request)
        _current.set(context)

        def answer(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (_HEADER, request)]
            return send(message)

        self.in_flight += 1
        try:
            await self._app(scope, receive, answer)
        finally:
            self.in_flight -= 1
            context.is_over = True
            self._count(scope, status, perf_counter() - began)

    def _id_of(self, scope: Scope) -> bytes:
        for name, value in scope["headers"]:
            if name == _HEADER and _ID.fullmatch(value):
                return bytes(value)
        return b"%s-%x" % (self._prefix.encode(), next(self._numbers))

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        method: str = scope["method"] if scope["method"] in _METHODS else UNROUTED
        route: str = getattr(scope.get("route"), "path", UNROUTED)
        self.requests[method, route, status] += 1
        durations = self.durations.get((method, route))
        if durations is None:
            durations = self.durations[method, route] = Durations()
        durations.add(seconds)
