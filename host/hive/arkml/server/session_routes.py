"""Routes of sessions: join a run, keep the session alive, leave. `bodies` has the route of rows."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict

from arkml.base.loggers import SafeLogger
from arkml.base.terminal import harmless
from arkml.hive.protocol.session_messages import (
    ON_POLICY,
    Joined,
    JoinRequest,
    LeaveReply,
    LeaveRequest,
    SessionState,
)
from arkml.hive.protocol.wire import Nothing
from arkml.server.request_context import note_session
from arkml.server.routes import HiveCall, Operation, require_own_run

_log = SafeLogger(__name__)


async def _join(call: HiveCall, request: JoinRequest) -> Joined:
    """Join a run, or continue a session with its key."""
    call.hive.require_session(call.key, request.join_key)
    return await _joined(call, request, is_worker=False)


async def _join_as_worker(call: HiveCall, request: JoinRequest) -> Joined:
    """Join the run that a rollout worker was started for."""
    return await _joined(call, request, is_worker=True)


async def _joined(call: HiveCall, request: JoinRequest, *, is_worker: bool) -> Joined:
    run = call.run
    session, rejoined = await run.join(
        request.join_key, request.features, request.actions, request.role, is_worker=is_worker
    )
    note_session(run.document.id, session.index)
    _log.info(
        "%s joins run %s%s, as session %d (%s)",
        _named(call, request.host), run.lifecycle.title, " again" if rejoined else "",
        session.index, request.role.value,
    )  # fmt: skip
    settings = run.document.request.settings
    return Joined(
        sid=session.sid,
        index=session.index,
        learner=settings.learner,
        is_on_policy=settings.learner in ON_POLICY,
        is_pink=settings.is_pink,
        rejoin=rejoined,
        parts=settings.parts,
        **asdict(run.session_state(session)),
    )


def _named(call: HiveCall, host: str) -> str:
    """Return the caller for the log, such as "ann at box"; both names are those of others."""
    who = call.caller.name or "a host"
    return harmless(f"{who} at {host}" if host else who).replace("\n", " ")


async def _beat(call: HiveCall, _: Nothing) -> SessionState:
    """Renew the lease of a session."""
    run, session = call.hive.session(call.key)
    run.lifecycle.use(session)
    if not run.is_active:
        await run.start()
    return run.session_state(session)


async def _leave(call: HiveCall, request: LeaveRequest) -> LeaveReply:
    """Leave a run, which stops with its last session if the caller may stop it."""
    run, session = call.hive.session(call.key)
    if request.stop:
        require_own_run(call.caller, run, "stop")
    may_end = call.caller.owns(run.document.owner)
    had_left = session.left
    await run.leave(session, stop=request.stop, may_end=may_end)
    if not had_left:
        rows = run.lifecycle.rows_of(session)
        _log.info(
            "session %d leaves run %s, %d rows are its", session.index, run.lifecycle.title, rows
        )
    return LeaveReply(run.status)


async def _leave_as_worker(call: HiveCall, _: LeaveRequest) -> LeaveReply:
    """Leave a run, which a rollout worker cannot stop for others."""
    return await _leave(call, LeaveRequest())


SESSION_OPERATIONS: tuple[Operation[Any], ...] = (
    Operation(
        "POST", "/runs/{run_id}/sessions", JoinRequest, Joined, _join, worker=_join_as_worker,
        takes_part=True,
    ),
    Operation("POST", "/sessions/{sid}/beat", Nothing, SessionState, _beat, worker=_beat),
    Operation(
        "POST", "/sessions/{sid}/leave", LeaveRequest, LeaveReply, _leave, worker=_leave_as_worker
    ),
)  # fmt: skip
