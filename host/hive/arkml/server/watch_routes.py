"""Routes for watching a run: its guest, the versions it keeps, their event streams, recordings."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response

from arkml.errors import HiveRefused
from arkml.hive.protocol.watch_messages import (
    GuestReport,
    RecordingReply,
    RecordingRequest,
    WatchableVersion,
    WatchableVersions,
    WatchQuery,
)
from arkml.hive.protocol.wire import Nothing
from arkml.server.access.callers import AccessRole
from arkml.server.bodies import reply
from arkml.server.event_stream import EVENT_STREAM, EventStream
from arkml.server.routes import HiveCall, Operation
from arkml.server.run import Run
from arkml.server.run_guest import NOT_KEPT
from arkml.server.watches import OFF, PlayedVersion

_PATIENCE = 20.0  # seconds that a request for a recording waits: pages wait for 30
_MOST_NAMED = 12  # versions in a sentence


async def _keep_guest(call: HiveCall, report: GuestReport) -> GuestReport:
    """
    Keep an uploaded module as the guest of a run, so that its policies can be watched.

    404 if the module was not uploaded, 503 if this hive plays no versions.
    """
    call.hive.watches.require_allowed()
    run, module = call.own_run("keep the guest of"), call.hive.modules.path(report.module)
    try:
        await asyncio.to_thread(run.guest.keep, report, module)
    except FileNotFoundError:  # another one has taken its place
        raise HiveRefused(f"there is no module {report.module}: upload it first", 404) from None
    return report


async def _versions(call: HiveCall, _: Nothing) -> WatchableVersions:
    """List the versions of a run that can be watched, or say why none can."""
    run = call.run
    report = await asyncio.to_thread(run.guest.report)
    found = dict(await asyncio.to_thread(run.policies.kept))
    best = run.document.best
    if best is not None and (at := await asyncio.to_thread(run.policies.best_at)):
        found.setdefault(best.version, at)
    obstacle = "" if report is not None else NOT_KEPT
    return WatchableVersions(
        [
            WatchableVersion(version, at, run.policies.ratings.get(version))
            for version, at in sorted(found.items())
        ],
        None if best is None or best.version not in found else best.version,
        None if run.policies.newest is None else run.policies.newest.version,
        "" if report is None else report.name,
        obstacle if call.hive.watches.options.total else OFF,
    )


async def _watch(call: HiveCall, query: WatchQuery) -> Response:
    """
    Stream an evaluation of a version, played for all who watch it, as server-sent events.

    `head` has the meanings of rows, `frame` what is seen in a frame, `kept` is false once the
    version is not kept any more, `ended` has a reason. 404 for a version that is not kept, 429 if
    as many are watched as this hive plays.
    """
    call.hive.watches.require_allowed()
    run, watches = call.run, call.hive.watches
    number, policy = await _policy_of(run, query.version)
    watch = watches.running(run.document.id, number, query.seed)
    if watch is None:
        watch = await watches.watch(await _played(call, number, policy), query.seed)
    return EventStream(watch.stream)


async def _record(call: HiveCall, request: RecordingRequest) -> Response:
    """
    Record an episode of a version, and keep its replay; 202 while it is still played.

    The same request again waits for the same recording.
    """
    call.hive.watches.require_allowed()
    run = call.own_run("record an episode of")
    number, policy = await _policy_of(run, request.version)
    report = await call.hive.watches.record(await _played(call, number, policy), _PATIENCE)
    if report is None:
        return reply(RecordingReply(None), 202)
    call.hive.disk.take(len(report.document))
    return reply(RecordingReply(await run.keep_recorded(report)))


async def _policy_of(run: Run, version: str) -> tuple[int, bytes]:
    """Return the number and the file of a version. Raises HiveRefused if it is not kept."""
    best, newest = run.document.best, run.policies.newest
    if version == "latest":
        if newest is not None:
            return newest.version, newest.data
    elif version == "best" or (best is not None and int(version) == best.version):
        data = await run.best_policy()
        best = run.document.best  # which asking may have made newer
        if data is not None and best is not None and version in ("best", str(best.version)):
            return best.version, data
    if version.isdecimal():
        kept = await asyncio.to_thread(run.policies.read, int(version))
        if kept is not None:
            return int(version), kept
    raise HiveRefused(await _not_kept(run, version), 404)


async def _not_kept(run: Run, version: str) -> str:
    """Return a sentence about a version that is not kept, with those that are."""
    name = f"{version} version" if not version.isdecimal() else f"version {int(version)}"
    kept = [str(number) for number, _ in await asyncio.to_thread(run.policies.kept)]
    if not kept:
        return f"run {run.document.id} keeps no {name}: it has no policy yet"
    if len(kept) > _MOST_NAMED:
        half = _MOST_NAMED // 2
        kept = [*kept[:half], "…", *kept[-half:]]
    best = run.document.best
    also = "" if best is None else f", and the best, {best.version}"
    return f"run {run.document.id} keeps no {name}: there are {', '.join(kept)}{also}"


async def _played(call: HiveCall, number: int, policy: bytes) -> PlayedVersion:
    """
    Return what a player needs. Raises HiveRefused if the run keeps no guest.

    Others act by the newest policies of their runs, as far as these are of the same owner.
    """
    run = call.run
    report, module = await asyncio.to_thread(run.guest.read)
    others = {}
    every = {one.document.id: one for one in call.hive.present_runs}
    for name, run_id in report.others.items():
        other = every.get(run_id)
        if other is not None and other.document.owner == run.document.owner:
            newest = other.policies.newest
            if newest is not None:
                others[name] = newest.version, newest.data

    def is_kept() -> bool:
        best = run.document.best
        return (best is not None and best.version == number) or run.policies.has(number)

    return PlayedVersion(run.document.id, number, policy, report, module, is_kept, others)


WATCH_OPERATIONS: tuple[Operation[Any], ...] = (
    Operation("POST", "/runs/{run_id}/guest", GuestReport, GuestReport, _keep_guest),
    Operation(
        "GET", "/runs/{run_id}/versions", Nothing, WatchableVersions, _versions,
        enough=AccessRole.ACT,
    ),
    Operation(
        "GET", "/runs/{run_id}/watch", WatchQuery, EVENT_STREAM, _watch, enough=AccessRole.ACT
    ),
    Operation(
        "POST", "/runs/{run_id}/recordings", RecordingRequest, RecordingReply, _record, (200, 202)
    ),
)  # fmt: skip
