"""
A trace for each body of rows: through the log and the learner, to the policy version made from it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arkml.hive.tracing import HEADER, Tracing, trace_id, tracing
from arkml.server.bodies import APPENDED, Appended
from arkml.server.request_context import begin_run, note_trace
from arkml.server.run import Run

if TYPE_CHECKING:
    from opentelemetry.trace import Span

MOST = 256
"""Bodies that are followed at one time; the traces of others end in the log."""

PATIENCE = 60.0
"""Seconds after which a body is no longer followed, for example if no update is made."""

_HEADER = HEADER.encode()

_LOOK_EVERY = 5.0
"""Seconds between two looks at a run in which nothing happens."""

STAGES = ("read rows", "update", "publish version", "deliver version")
"""
The spans of a body after its log, one after the other.

They are those that the hive sees: rows are read once the learner reports it, which it does every 25
ms at most, and the learner itself needs no OpenTelemetry.
"""

_UPDATE, _PUBLISH, _DELIVER, _OVER = 1, 2, 3, 4


def traced(app: ASGIApp) -> ASGIApp:
    """Return an application that records traces, or `app` itself while tracing is off."""
    on = tracing("arkml-hive")
    return app if on is None else TracedBodies(app, on)


class TracedBodies:
    """
    ASGI middleware that records a trace of each sampled body of rows.

    A trace begins in a host that sends the header `traceparent`, or here. The answer with the first
    policy version that learned from a body also carries such a header, for the host that receives
    the version.
    """

    def __init__(self, app: ASGIApp, on: Tracing) -> None:
        self._app = app
        self._tracing = on
        self._followed: dict[str, FollowedBodies] = {}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        # Not a coroutine of its own: nearly all requests are handed on as they are.
        path = scope["path"] if scope["type"] == "http" else ""
        if path.endswith("/rows") and scope["method"] == "POST":
            parent = _parent_of(scope)
            if not self._tracing.is_left_out(parent):
                return self._append(parent, scope, receive, send)
        elif path.endswith("/policy") and self._followed:
            return self._app(scope, receive, self._marking(scope, send))
        return self._app(scope, receive, send)

    async def _append(self, parent: str, scope: Scope, receive: Receive, send: Send) -> None:
        span = self._tracing.start("append rows", kind="server", parent=parent)
        try:
            if span.is_recording():
                note_trace(trace_id(span))
            await self._app(scope, receive, send)
        finally:
            appended = scope.get(APPENDED)
            if appended is not None and span.is_recording():
                span.set_attributes(_attributes(appended))
                self._follow(span, appended)
            span.end()

    def _follow(self, span: Span, appended: Appended) -> None:
        """Follow a body from the log on, unless as many are followed already as may be."""
        if sum(map(len, self._followed.values())) >= MOST:
            return
        run_id = appended.run.document.id
        bodies = self._followed.get(run_id)
        if bodies is None:
            bodies = FollowedBodies(appended.run, lambda: self._followed.pop(run_id))
            self._followed[run_id] = bodies
        bodies.add(FollowedBody(self._tracing, span, appended))

    def _marking(self, scope: Scope, send: Send) -> Send:
        """Return a function that sends an answer with a policy version, with its trace."""

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                told = dict(message["headers"])
                version, n_opts = told.get(b"x-arkml-version"), told.get(b"x-arkml-n-opts")
                bodies = self._followed.get(scope["path_params"].get("run_id", ""))
                if bodies is not None and version is not None and n_opts is not None:
                    header = bodies.deliver(int(version), int(n_opts)).encode()
                    if header:
                        message["headers"] = [*message["headers"], (_HEADER, header)]
            await send(message)

        return answer


class FollowedBodies:
    """
    The traced bodies of one run, followed by one task that looks at them when the run changes.

    `ended` is called once no body is followed any more.
    """

    def __init__(self, run: Run, ended: Callable[[], object]) -> None:
        self._run = run
        self._ended = ended
        self._bodies: list[FollowedBody] = []
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._bodies)

    def add(self, body: FollowedBody) -> None:
        """Follow one more body."""
        self._bodies.append(body)
        if self._task is None:
            self._task = asyncio.create_task(self._watch())

    def deliver(self, version: int, n_opts: int) -> str:
        """
        End the traces of all bodies that a delivered policy version has learned from.

        Args:
            version: The number of the policy version.
            n_opts: The number of updates of that policy.

        Returns:
            The header `traceparent` of the oldest of these traces, empty if there are none.

        """
        headers = [one.deliver(version, n_opts) for one in self._bodies]
        return next(filter(None, headers), "")

    async def _watch(self) -> None:
        begin_run(self._run.document.id)
        lifecycle = self._run.lifecycle
        try:
            while self._bodies and not lifecycle.is_ending:
                await lifecycle.changes.wait_for(self._look, _LOOK_EVERY)
        finally:
            for one in self._bodies:
                one.give_up("the run has ended")
            self._bodies.clear()
            self._ended()

    def _look(self) -> bool:
        """Update the spans by the state of the run; return True if there is nothing to wait for."""
        too_old = time.monotonic() - PATIENCE
        for one in self._bodies:
            one.look(self._run)
            if one.began < too_old:
                one.give_up(f"not within {PATIENCE:g} s")
        self._bodies = [one for one in self._bodies if not one.is_over]
        return not self._bodies or self._run.lifecycle.is_ending


class FollowedBody:
    """
    The trace of one body from its arrival in the log on: a span for each of STAGES, in order.

    Args:
        on: The recorder of spans.
        root: The span of the whole trace.
        appended: The body, and its position in the log.

    """

    def __init__(self, on: Tracing, root: Span, appended: Appended) -> None:
        self.began = time.monotonic()
        self._tracing = on
        self._root = root
        self._end_of_rows = appended.end
        self._stage = 0
        self._version = 0
        # The updates before the first one that can have used the rows.
        self._before = appended.run.document.n_opts
        self._is_in_lockstep = appended.run.document.request.settings.sync
        self._span = on.start(STAGES[0], parent=root)

    @property
    def is_over(self) -> bool:
        """True once the trace has ended."""
        return self._stage >= _OVER

    def look(self, run: Run) -> None:
        """Record how far the learner and the hive have come with the rows of the body."""
        if self._stage >= _DELIVER:
            return
        n_opts, newest = run.document.n_opts, run.policies.newest
        if self._stage < _UPDATE and run.lifecycle.log.cursor >= self._end_of_rows:
            if not self._is_in_lockstep:  # where rows count as read only after their updates
                self._before = n_opts
            self._reach(_UPDATE)
        if self._stage == _UPDATE and n_opts > self._before:
            self._reach(_PUBLISH)
        if self._stage >= _UPDATE and newest and newest.n_opts > self._before:
            self._publish(newest.version)

    def deliver(self, version: int, n_opts: int) -> str:
        """
        Note that a policy version is delivered; the first one made from the body ends the trace.

        Args:
            version: The number of the policy version.
            n_opts: The number of updates of that policy.

        Returns:
            The header `traceparent` for the receiver, empty if this version does not end the trace.

        """
        if not _UPDATE <= self._stage < _OVER or n_opts <= self._before:
            return ""
        self._publish(version)
        header = self._tracing.header(self._span)
        self._reach(_OVER)
        return header

    def give_up(self, reason: str) -> None:
        """End the span in progress, and the trace, with a reason, unless the trace has ended."""
        if not self.is_over:
            self._span.set_attribute("arkml.given_up", reason)
            self._end_span()
            self._stage = _OVER

    def _publish(self, version: int) -> None:
        self._version = self._version or version
        self._reach(_DELIVER)

    def _reach(self, stage: int) -> None:
        """End the spans before a stage, and begin its own."""
        while self._stage < stage:
            self._end_span()
            self._stage += 1
            if self._stage < _OVER:
                self._span = self._tracing.start(STAGES[self._stage], parent=self._root)

    def _end_span(self) -> None:
        if self._stage >= _PUBLISH and self._version:
            self._span.set_attribute("arkml.policy_version", self._version)
        self._span.end()


def _parent_of(scope: Scope) -> str:
    """Return the header `traceparent` of a request, empty without one."""
    for name, value in scope["headers"]:
        if name == _HEADER:
            return str(value, "latin-1")
    return ""


def _attributes(appended: Appended) -> dict[str, str | int]:
    run, session, header, _ = appended
    return {
        "arkml.run": run.document.id,
        "arkml.session": session.index,
        "arkml.body": header.seq,
        "arkml.rows": header.rows,
    }
