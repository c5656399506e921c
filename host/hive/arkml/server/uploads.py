"""The route that takes rows, as plain ASGI: every millisecond here is a few hundred rows."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import asdict
from starlette.responses import Response
from starlette.types import Receive, Scope

from arkml.errors import HiveRefused
from arkml.hive.protocol.rows import CONTENT_TYPE, Header, RowKind
from arkml.hive.protocol.runs import Role
from arkml.hive.protocol.segments import Place
from arkml.hive.protocol.session_messages import OutOfTurn, RowsReply
from arkml.server.access.callers import AccessRole, caller_in
from arkml.server.bodies import BodyRoute, declared_size, read_rows
from arkml.server.hive import Hive
from arkml.server.routes import reply
from arkml.server.run import Run
from arkml.server.sessions import RunSession

APPENDED = "arkml.appended"
"""The key of a request's scope under which middleware finds the appended body."""


class Appended(NamedTuple):
    """A body that is in the log of a run, and the position after it."""

    run: Run
    session: RunSession
    header: Header
    end: Place


class Uploads(BodyRoute):
    """`POST /v1/sessions/{sid}/rows`."""

    def __init__(self, hive: Hive) -> None:
        super().__init__(self._take)
        self._hive = hive

    async def _take(self, scope: Scope, receive: Receive) -> Response:
        caller = caller_in(scope)
        if caller.grant is None:
            caller.require(AccessRole.ACT, "POST", "/sessions/{sid}/rows")
        run, session = self._hive.session(scope["path_params"]["sid"])
        if caller.grant is not None:
            caller.grant.require_run(run.document.id)
        run.lifecycle.use(session)
        if session.role is Role.EVALUATE:
            raise HiveRefused("a session that evaluates keeps its rows", 422)
        kind = dict(scope["headers"]).get(b"content-type", b"").split(b";")[0].strip()
        if kind != CONTENT_TYPE.encode():
            raise HiveRefused(f"rows are {CONTENT_TYPE}, not {kind.decode('latin-1')!r}", 415)
        header, body = await read_rows(declared_size(scope), receive)
        run.document.check_widths(header.features, header.actions, 422, images=header.images)
        if header.seq < 1:
            raise HiveRefused("bodies are counted from 1", 422)
        if not run.is_active:
            await run.start()
        run.lifecycle.use(session)
        run.require_turn()
        session.has_demonstrated |= header.kind is RowKind.DEMONSTRATION
        expected = run.lifecycle.log.acked(session.index) + 1
        if header.seq > expected:
            text = f"body {header.seq} comes before body {expected}"
            return reply(OutOfTurn(text, expected), 409)
        is_new = header.seq == expected
        checked, end = await run.append(session, header, body, is_new=is_new)
        if end is not None:
            self._hive.refused_rows.update(checked.kinds)
            scope[APPENDED] = Appended(run, session, checked.header, end)
        answer = RowsReply(
            accepted=checked.header.rows if is_new else 0,
            refused=checked.reasons,  # of a repetition, those of the first time may be lost
            refused_n=checked.refused,
            duplicate=not is_new,
            **asdict(run.session_state(session)),
        )
        return reply(answer)
