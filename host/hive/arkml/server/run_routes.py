"""Routes of runs: create, list, show, label, stop and delete them, and number their metrics."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from arkml.errors import HiveRefused
from arkml.hive.protocol.labels import LabelsChange, LabelsReply
from arkml.hive.protocol.runs import (
    MAX_CONFIGURATION_BYTES,
    MAX_NAME_BYTES,
    MAX_NAMES,
    CreatedRun,
    DeletedRun,
    DeleteQuery,
    RunDetails,
    RunList,
    RunReply,
    RunRequest,
)
from arkml.hive.protocol.session_messages import NamesReply, NamesRequest
from arkml.hive.protocol.settings import MAX_SETTINGS_BYTES
from arkml.hive.protocol.wire import Nothing
from arkml.server.access.callers import AccessRole
from arkml.server.bodies import reply
from arkml.server.creators import KEY_HEADER
from arkml.server.routes import TEXT, HiveCall, Operation

_MOST_NAMES = 4 * MAX_NAMES
_TOO_LARGE = 413


async def _create(call: HiveCall, request: RunRequest) -> Response:
    """
    Create a run, or join the run of that game and name.

    A request that repeats the header Idempotency-Key of a request of the last 24 hours gets the run
    of that request; with another body it is refused by 422.
    """
    _require_size("configuration", request.configuration)
    _require_size("arguments", request.arguments or "")
    _require_size("checkpoint", request.checkpoint, MAX_NAME_BYTES)
    _require_size("settings", request.settings.as_bytes().decode(), MAX_SETTINGS_BYTES)
    caller = call.caller
    run, created = await call.hive.create(
        request, call.key, owner=caller.owner, owner_name=caller.name
    )
    return reply(CreatedRun(run.info(), created), 201 if created else 200)


def _require_size(name: str, text: str, most: int = MAX_CONFIGURATION_BYTES) -> None:
    """Raise HiveRefused for a text that is too long to be kept with a run, and written often."""
    size = len(text.encode())
    if size > most:
        raise HiveRefused(f"{name} has {size} bytes: it takes {most} at most", _TOO_LARGE)


async def _list(call: HiveCall, _: Nothing) -> RunList:
    """List the runs, the newest first; the page shows a token of the role `act` its own alone."""
    return RunList(call.hive.runs(call.caller))


async def _show(call: HiveCall, _: Nothing) -> RunDetails:
    """Show one run, with its settings, its best policy, its workers and its sessions."""
    run = call.run
    document = run.document
    request = document.request
    labels, start = run.labels.now, run.start_file.now
    is_told = call.caller.sees(document.owner)
    return RunDetails(
        run.info(),
        request.settings,
        document.best,
        request.module,
        run.workers.infos(),
        run.session_infos(),
        document.owner,
        owner_name=start.owner_name,
        note=labels.note if is_told else "",
        note_revision=labels.note_revision,
        origin=start.origin if is_told else None,
    )


async def _label(call: HiveCall, change: LabelsChange) -> LabelsReply:
    """Change the title, the note, the tags, the star or the archive of a run."""
    run = call.own_run("label")
    labels = await run.labels.change(change)
    return LabelsReply(run.info(), labels.note, labels.note_revision)


async def _config(call: HiveCall, _: Nothing) -> Response:
    """Return the configuration of a run, byte for byte."""
    text = call.run.document.request.configuration
    return Response(text.encode(), media_type=TEXT)


async def _stop(call: HiveCall, _: Nothing) -> RunReply:
    """Stop a run for all sessions."""
    run = call.own_run("stop")
    await run.stop()
    return RunReply(run.info())


async def _delete(call: HiveCall, query: DeleteQuery) -> DeletedRun:
    """Delete a run that has ended, with all its files."""
    call.own_run("delete")
    await call.hive.delete(call.key, force=bool(query.force))
    return DeletedRun(call.key)


async def _names(call: HiveCall, request: NamesRequest) -> NamesReply:
    """Give numbers to the names of metrics; a name keeps its number."""
    names = request.names
    if len(names) > _MOST_NAMES:
        raise HiveRefused(f"{len(names)} names at once: {_MOST_NAMES} at most", 422)
    return NamesReply(*await call.run.number_metrics(names))


RUN_OPERATIONS: tuple[Operation[Any], ...] = (
    Operation("POST", "/runs", RunRequest, CreatedRun, _create, (200, 201), key_header=KEY_HEADER),
    Operation("GET", "/runs", Nothing, RunList, _list, enough=AccessRole.ACT),
    Operation(
        "GET", "/runs/{run_id}", Nothing, RunDetails, _show, worker=_show, enough=AccessRole.ACT,
        takes_part=True,
    ),
    Operation("PATCH", "/runs/{run_id}", LabelsChange, LabelsReply, _label),
    Operation("DELETE", "/runs/{run_id}", DeleteQuery, DeletedRun, _delete),
    Operation(
        "GET", "/runs/{run_id}/config", Nothing, TEXT, _config, worker=_config,
        enough=AccessRole.ACT, takes_part=True,
    ),
    Operation("POST", "/runs/{run_id}/stop", Nothing, RunReply, _stop),
    Operation(
        "POST", "/runs/{run_id}/names", NamesRequest, NamesReply, _names, worker=_names,
        takes_part=True,
    ),
)  # fmt: skip
