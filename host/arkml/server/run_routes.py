"""Routes of runs: create, list, show, stop and delete them, and number their metrics."""

from __future__ import annotations

import logging
from typing import Any

from starlette.responses import Response

from arkml.errors import HiveRefused
from arkml.hive.protocol.runs import (
    MAX_NAMES,
    CreatedRun,
    DeletedRun,
    DeleteQuery,
    RunDetails,
    RunList,
    RunReply,
    RunRequest,
)
from arkml.hive.protocol.sessions import NamesReply, NamesRequest
from arkml.hive.protocol.wire import Nothing
from arkml.server.hive import Hive
from arkml.server.routes import TEXT, Operation, reply
from arkml.terminal import harmless

_log = logging.getLogger(__name__)

_MOST_NAMES = 4 * MAX_NAMES


async def _create(hive: Hive, _: str, request: RunRequest) -> Response:
    """Create a run, or join the one of that game and name."""
    run, created = await hive.create(request)
    return reply(CreatedRun(run.info(), created), 201 if created else 200)


async def _list(hive: Hive, _: str, __: Nothing) -> RunList:
    """List all runs, the newest first."""
    return RunList(hive.runs())


async def _show(hive: Hive, run_id: str, _: Nothing) -> RunDetails:
    """Show one run, with its settings and its best policy."""
    run = hive.run(run_id)
    document = run.document
    request = document.request
    return RunDetails(
        run.info(), request.settings, document.best, request.module, run.workers.infos()
    )


async def _config(hive: Hive, run_id: str, _: Nothing) -> Response:
    """Return the configuration of a run, byte for byte."""
    text = hive.run(run_id).document.request.configuration
    return Response(text.encode(), media_type=TEXT)


async def _stop(hive: Hive, run_id: str, _: Nothing) -> RunReply:
    """Stop a run for all sessions."""
    run = hive.run(run_id)
    await run.stop()
    return RunReply(run.info())


async def _delete(hive: Hive, run_id: str, query: DeleteQuery) -> DeletedRun:
    """Delete a run that is over, with all its files."""
    name = hive.run(run_id).document.request.name
    await hive.delete(run_id, force=bool(query.force))
    _log.info("run %s (%s) was removed", run_id, harmless(name))
    return DeletedRun(run_id)


async def _names(hive: Hive, run_id: str, request: NamesRequest) -> NamesReply:
    """Give numbers to the names of metrics; a name keeps its number."""
    names = request.names
    if len(names) > _MOST_NAMES:
        raise HiveRefused(f"{len(names)} names at once: {_MOST_NAMES} at most", 422)
    return NamesReply(*await hive.run(run_id).number_metrics(names))


RUN_OPERATIONS: tuple[Operation[Any], ...] = (
    Operation("POST", "/runs", RunRequest, CreatedRun, _create, (200, 201)),
    Operation("GET", "/runs", Nothing, RunList, _list),
    Operation("GET", "/runs/{run_id}", Nothing, RunDetails, _show, worker=_show),
    Operation("DELETE", "/runs/{run_id}", DeleteQuery, DeletedRun, _delete),
    Operation("GET", "/runs/{run_id}/config", Nothing, TEXT, _config, worker=_config),
    Operation("POST", "/runs/{run_id}/stop", Nothing, RunReply, _stop),
    Operation("POST", "/runs/{run_id}/names", NamesRequest, NamesReply, _names, worker=_names),
)
