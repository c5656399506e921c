"""The routes of what a run has learned: policies, metrics, checkpoints, and what is in memory."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from arkml.errors import HiveError, HiveRefused
from arkml.hive.protocol.runs import POLL_SECONDS
from arkml.server.bodies import read_object
from arkml.server.checkpoints import checkpoint_name, list_checkpoints
from arkml.server.hive import Hive
from arkml.server.learner_events import read_policy_file
from arkml.server.run import Run

_ONNX = "application/octet-stream"
_PATIENCE = 20.0
_LONG = 60.0
"""Seconds for a learner that may be busy with a large network."""

_MOST_EPISODES = 10_000
_LAST_STEP = (1 << 63) - 1


def learning_routes(hive: Hive) -> APIRouter:
    """Everything that a learner has a part in."""
    router = APIRouter()

    @router.get("/runs/{run_id}/policy")
    async def policy(run_id: str, after: int = 0, wait: float = 0.0) -> Response:
        return await _newer(hive.run(run_id), after, wait)

    @router.get("/runs/{run_id}/snapshot")
    async def snapshot(run_id: str, which: str = "now") -> Response:
        return Response(await _snapshot(hive.run(run_id), which), media_type=_ONNX)

    @router.get("/runs/{run_id}/metrics")
    async def metrics(run_id: str) -> dict[str, Any]:
        latest = hive.run(run_id).metrics.latest
        return {"metrics": [[name, value, step] for name, (value, step) in latest.items()]}

    @router.get("/runs/{run_id}/series")
    async def series(run_id: str, name: str, since: int = 0) -> dict[str, Any]:
        points = await hive.run(run_id).metrics.series(name, min(max(since, 0), _LAST_STEP))
        return {"series": [list(point) for point in points]}

    @router.post("/runs/{run_id}/evaluations")
    async def evaluations(run_id: str, request: Request) -> dict[str, Any]:
        return {"best": await _evaluated(hive.run(run_id), await read_object(request))}

    @router.post("/runs/{run_id}/checkpoints")
    async def save(run_id: str) -> dict[str, Any]:
        reply = await hive.run(run_id).request("checkpoint", _LONG)
        return {"checkpoint": checkpoint_name(run_id, int(reply["n_opts"]))}

    @router.get("/runs/{run_id}/checkpoints")
    async def saved(run_id: str) -> dict[str, Any]:
        return {"checkpoints": list_checkpoints(hive.run(run_id).directory)}

    @router.get("/runs/{run_id}/memory")
    async def memory(run_id: str) -> dict[str, Any]:
        return await hive.run(run_id).audit(_LONG)

    return router


async def _newer(run: Run, after: int, wait: float) -> Response:
    seconds = min(max(wait, 0.0), POLL_SECONDS) if math.isfinite(wait) else 0.0
    newer = await run.newer_policy(after, seconds)
    headers = {"X-Arkml-Status": str(run.status)}
    if newer is None:
        return Response(status_code=204, headers=headers)
    headers["X-Arkml-Version"] = str(newer.version)
    headers["X-Arkml-N-Opts"] = str(newer.n_opts)
    headers["X-Arkml-Sha256"] = newer.sha256
    return Response(newer.data, media_type=_ONNX, headers=headers)


async def _snapshot(run: Run, which: str) -> bytes:
    sources: dict[str, Callable[[], bytes | None]] = {
        "best": run.policies.read_best,
        "latest": lambda: run.policies.newest.data if run.policies.newest else None,
    }
    if which == "now":
        reply = await run.request("export", _PATIENCE)
        try:
            return await asyncio.to_thread(run.policies.read_export, read_policy_file(reply))
        except HiveError as error:
            raise HiveRefused(f"the learner exported no policy: {error}", 503) from error
    if which not in sources:
        raise HiveRefused(f"which is {which!r}: it takes now, best or latest", 422)
    data = await asyncio.to_thread(sources[which])
    if data is None:
        raise HiveRefused(f"run {run.document.id} has no {which} policy yet", 404)
    return data


async def _evaluated(run: Run, wish: dict[str, Any]) -> bool:
    version = wish.get("version")
    returns, lengths = _numbers(wish.get("returns")), _numbers(wish.get("lengths"))
    if type(version) is not int or len(returns) != len(lengths):
        raise HiveRefused("an evaluation has a version, and as many returns as lengths", 422)
    return await run.evaluate(version, returns, lengths)


def _numbers(found: object) -> list[float]:
    if not isinstance(found, list) or not 0 < len(found) <= _MOST_EPISODES:
        raise HiveRefused(f"an evaluation has 1 to {_MOST_EPISODES} episodes", 422)
    if not all(type(one) in (int, float) for one in found):
        raise HiveRefused("the returns and lengths of episodes are numbers", 422)
    return [float(one) for one in found]
