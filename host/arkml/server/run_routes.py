"""The routes of runs: what there are, and what they were asked to be."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from arkml.errors import HiveRefused
from arkml.hive.protocol.runs import MAX_NAMES, RunDetails, RunRequest
from arkml.server.bodies import read_object
from arkml.server.hive import Hive

_MOST_NAMES = 4 * MAX_NAMES


def run_routes(hive: Hive) -> APIRouter:
    """Create, list, show, stop and delete runs."""
    router = APIRouter()

    @router.post("/runs")
    async def create(request: Request) -> JSONResponse:
        run, created = await hive.create(RunRequest.from_json(await read_object(request)))
        answer = {"run": run.info().as_json(), "created": created}
        return JSONResponse(answer, 201 if created else 200)

    @router.get("/runs")
    async def runs() -> dict[str, Any]:
        return {"runs": [info.as_json() for info in hive.runs()]}

    @router.get("/runs/{run_id}")
    async def show(run_id: str) -> dict[str, Any]:
        run = hive.run(run_id)
        document = run.document
        return RunDetails(run.info(), document.request.settings, document.best).as_json()

    @router.get("/runs/{run_id}/config")
    async def config(run_id: str) -> Response:
        text = hive.run(run_id).document.request.configuration
        return Response(text.encode(), media_type="text/plain")

    @router.post("/runs/{run_id}/stop")
    async def stop(run_id: str) -> dict[str, Any]:
        run = hive.run(run_id)
        await run.stop()
        return {"run": run.info().as_json()}

    @router.delete("/runs/{run_id}")
    async def delete(run_id: str, force: int = 0) -> dict[str, Any]:
        await hive.delete(run_id, force=bool(force))
        return {"deleted": run_id}

    @router.post("/runs/{run_id}/names")
    async def names(run_id: str, request: Request) -> dict[str, Any]:
        found = (await read_object(request)).get("names")
        if isinstance(found, list) and len(found) > _MOST_NAMES:
            raise HiveRefused(f"{len(found)} names at once: {_MOST_NAMES} at most", 422)
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise HiveRefused("names is a list of texts", 422)
        ids, refused = await hive.run(run_id).number_metrics(found)
        return {"ids": ids, "refused": refused}

    return router
