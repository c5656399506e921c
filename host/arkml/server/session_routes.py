"""The routes of sessions, their rows apart."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from arkml.errors import HiveRefused
from arkml.hive.protocol.runs import Role
from arkml.server.bodies import read_object
from arkml.server.hive import Hive


def session_routes(hive: Hive) -> APIRouter:
    """Join, beat and leave."""
    router = APIRouter()

    @router.post("/runs/{run_id}/sessions")
    async def join(run_id: str, request: Request) -> dict[str, Any]:
        wish = await read_object(request)
        run = hive.run(run_id)
        session, rejoined = await run.join(
            wish.get("join_key"), wish.get("features"), wish.get("actions"), _role(wish)
        )
        state = run.session_state(session)
        return {"sid": session.sid, "index": session.index, "rejoin": rejoined, **state}

    @router.post("/sessions/{sid}/beat")
    async def beat(sid: str) -> dict[str, Any]:
        run, session = hive.session(sid)
        run.touch(session)
        if not run.is_active:
            await run.start()
        return run.session_state(session)

    @router.post("/sessions/{sid}/leave")
    async def leave(sid: str, request: Request) -> dict[str, Any]:
        wish = await read_object(request)
        run, session = hive.session(sid)
        await run.leave(session, stop=wish.get("stop") is True)
        return {"status": run.status}

    return router


def _role(wish: dict[str, Any]) -> Role:
    try:
        return Role(wish.get("role", Role.ACT))
    except ValueError:
        raise HiveRefused(f"role is {wish['role']!r}: it takes act or eval", 422) from None
