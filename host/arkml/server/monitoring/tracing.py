"""One trace a body: from the hive's log over the learner to the version that a host gets."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arkml.hive.tracing import HEADER, Tracing, trace_id, tracing
from arkml.server.bodies import header_of
from arkml.server.log_lines import begin_run, note_trace
from arkml.server.uploads import APPENDED, Appended

if TYPE_CHECKING:
    from opentelemetry.trace import Span

MOST = 256
"""Bodies that are followed at one time; the traces of others end in the log."""

PATIENCE = 300.0
"""Seconds after which a body is not followed any more, as when its learner makes no updates."""

_HEADER = HEADER.encode()

STAGES = ("read rows", "update", "publish version", "deliver version")
"""
The spans of a body after its log, one after the other.

They are those that the hive sees: rows are read once the learner reports it, which it does every 25
ms at most, and the learner itself needs no OpenTelemetry.
"""

_UPDATE, _PUBLISH, _DELIVER, _OVER = 1, 2, 3, 4


def traced(app: ASGIApp) -> ASGIApp:
    """Return an application that records traces, or `app` itself where they are off."""
    on = tracing("arkml-hive")
    return app if on is None else TracedBodies(app, on)


class TracedBodies:
    """
    ASGI middleware that records a trace of each sampled body.

    A trace begins in the host that sends `traceparent`, or here. The answer with the first policy
    version that a body is part of has such a header, too, for the host that receives it.
    """

    def __init__(self, app: ASGIApp, on: Tracing) -> None:
        self._app = app
        self._tracing = on
        self._followed: defaultdict[str, list[FollowedBody]] = defaultdict(list)
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path.endswith("/rows") and scope["method"] == "POST":
            await self._append(scope, receive, send)
        elif path.endswith("/policy") and self._tasks:
            await self._app(scope, receive, self._marking(scope, send))
        else:
            await self._app(scope, receive, send)

    async def _append(self, scope: Scope, receive: Receive, send: Send) -> None:
        parent = header_of(scope, _HEADER).decode("latin-1")
        if self._tracing.is_left_out(parent):
            await self._app(scope, receive, send)
            return
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
        if appended.end is not None and len(self._tasks) < MOST:
            followed = FollowedBody(self._tracing, span, appended)
            self._tasks.add(task := asyncio.create_task(self._watch(followed, appended)))
            task.add_done_callback(self._tasks.discard)

    async def _watch(self, followed: FollowedBody, appended: Appended) -> None:
        run_id = appended.run.document.id
        begin_run(run_id)
        self._followed[run_id].append(followed)
        try:
            async with asyncio.timeout(PATIENCE):
                await _stages(followed, appended)
        except TimeoutError:
            followed.give_up(f"not within {PATIENCE:g} s")
        finally:
            followed.give_up("the run has ended")
            self._followed[run_id].remove(followed)
            if not self._followed[run_id]:
                del self._followed[run_id]

    def _marking(self, scope: Scope, send: Send) -> Send:
        """Return a function that sends an answer with a policy version, with its trace."""

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                told = dict(message["headers"])
                version, n_opts = told.get(b"x-arkml-version"), told.get(b"x-arkml-n-opts")
                if version is not None and n_opts is not None:
                    run_id = scope["path_params"].get("run_id", "")
                    header = self._delivered(run_id, int(version), int(n_opts))
                    if header:
                        message["headers"] = [*message["headers"], (_HEADER, header.encode())]
            await send(message)

        return answer

    def _delivered(self, run_id: str, version: int, n_opts: int) -> str:
        """End the traces of bodies that a version is made of; return the header of the oldest."""
        headers = [one.deliver(version, n_opts) for one in self._followed.get(run_id, ())]
        return next(filter(None, headers), "")


class FollowedBody:
    """The trace of one body after it was appended: one span of STAGES after the other."""

    def __init__(self, on: Tracing, root: Span, appended: Appended) -> None:
        self._tracing = on
        self._root = root
        self._stage = 0
        self._version = 0
        self._before = appended.run.document.n_opts
        self._is_in_lockstep = appended.run.document.request.settings.sync
        self._span = on.start(STAGES[0], parent=root)
        self.delivered = asyncio.Event()

    @property
    def before(self) -> int:
        """The updates of the policy before the first one that can have used the rows."""
        return self._before

    def read(self, n_opts: int) -> None:
        """Note that the learner has read the rows, after `n_opts` updates."""
        if not self._is_in_lockstep:  # where rows count as read only after their updates
            self._before = n_opts
        self._reach(_UPDATE)

    def update(self) -> None:
        """Note that the learner has made an update since."""
        self._reach(_PUBLISH)

    def publish(self, version: int) -> None:
        """Note that a version with that update is published."""
        self._version = self._version or version
        self._reach(_DELIVER)

    def deliver(self, version: int, n_opts: int) -> str:
        """
        Note that an answer has a version of `n_opts` updates; the first one ends the trace.

        Returns the header for its receiver, empty if the version is too old or not the first one.
        """
        if not _UPDATE <= self._stage < _OVER or n_opts <= self._before:
            return ""
        self.publish(version)
        header = self._tracing.header(self._span)
        self._reach(_OVER)
        self.delivered.set()
        return header

    def give_up(self, reason: str) -> None:
        """End the present span with a reason, unless the trace has ended."""
        if self._stage < _OVER:
            self._span.set_attribute("arkml.given_up", reason)
            self._end()
            self._stage = _OVER

    def _reach(self, stage: int) -> None:
        """End the spans before a stage, and begin its own."""
        while self._stage < stage:
            self._end()
            self._stage += 1
            if self._stage < _OVER:
                self._span = self._tracing.start(STAGES[self._stage], parent=self._root)

    def _end(self) -> None:
        if self._stage >= _PUBLISH and self._version:
            self._span.set_attribute("arkml.policy_version", self._version)
        self._span.end()


async def _stages(followed: FollowedBody, appended: Appended) -> None:
    """Wait for one stage of a body after the other, until the last one or the end of the run."""
    run, end = appended.run, appended.end
    lifecycle, policies, document = run.lifecycle, run.policies, run.document

    async def until(predicate: Callable[[], bool]) -> bool:
        await lifecycle.changes.wait_for(lambda: lifecycle.is_ending or predicate(), PATIENCE)
        return predicate()

    def published() -> bool:
        return policies.newest is not None and policies.newest.n_opts > followed.before

    assert end is not None
    if not await until(lambda: lifecycle.log.cursor >= end):
        return
    followed.read(document.n_opts)
    if not await until(lambda: document.n_opts > followed.before or published()):
        return
    followed.update()
    if not await until(published):
        return
    assert policies.newest is not None
    followed.publish(policies.newest.version)
    await followed.delivered.wait()


def _attributes(appended: Appended) -> dict[str, str | int]:
    run, session, header, _ = appended
    return {
        "arkml.run": run.document.id,
        "arkml.session": session.index,
        "arkml.body": header.seq,
        "arkml.rows": header.rows,
    }
