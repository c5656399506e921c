"""Routes for people who look at runs: curves, histories, logs, settings, resources."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.routing import Route

from arkml.errors import HiveRefused
from arkml.hive.protocol.page_messages import (
    MAX_REPLY_POINTS,
    CurvesQuery,
    CurvesReply,
    FramesReport,
    GoalReached,
    HistoryEntry,
    HistoryQuery,
    HistoryReply,
    LogQuery,
    LogReply,
    ManyCurvesQuery,
    ManyCurvesReply,
    ModuleReport,
    RunCurves,
    SettingsReply,
    UsageReply,
)
from arkml.hive.protocol.runs import RunReply
from arkml.hive.protocol.settings import Settings, rounded
from arkml.hive.protocol.wire import Nothing
from arkml.server.access.callers import AccessRole
from arkml.server.curve_reader import read_names
from arkml.server.hive import Hive
from arkml.server.learner_log import last_lines
from arkml.server.page.events import EVENTS_PATH, MAX_RUNS, EventStreams
from arkml.server.page.feed import Feed, parts
from arkml.server.page.site_files import SiteFiles
from arkml.server.resources import of_runs
from arkml.server.routes import HiveCall, Operation

_OWN = ("features", "actions", "branches", "seed")
"""Settings that have no default, or are different in each run of one experiment."""


async def _history(call: HiveCall, query: HistoryQuery) -> HistoryReply:
    """List the last events of a run, the oldest first."""
    return HistoryReply(call.run.lifecycle.history.since(query.since))


async def _note_module(call: HiveCall, report: ModuleReport) -> HistoryEntry:
    """Note that a run is trained with another module of its guest, as an event of the run."""
    return call.run.lifecycle.history.note_module(report)


async def _note_goal(call: HiveCall, report: GoalReached) -> RunReply:
    """Note that a training of a run has reached its goal, as an event of the run."""
    call.run.watch.note_goal(report)
    return RunReply(call.run.info())


async def _note_frames(call: HiveCall, report: FramesReport) -> RunReply:
    """Note the frames that a training has played for a run, of those that it was started for."""
    call.run.start_file.frames = report.frames
    return RunReply(call.run.info())


async def _log(call: HiveCall, query: LogQuery) -> LogReply:
    """Return the last lines that the learners of a run have printed."""
    return LogReply(*await asyncio.to_thread(last_lines, call.run.directory, query.lines))


async def _settings(call: HiveCall, _: Nothing) -> SettingsReply:
    """Return the settings of the runs that the caller sees which are not the defaults."""
    defaults = Settings(1, 1).as_json()
    runs: dict[str, dict[str, Any]] = {}
    for run in call.hive.present_runs:
        if not call.caller.sees(run.document.owner):
            continue
        values = run.document.request.settings.as_json()
        runs[run.document.id] = {
            name: value
            for name, value in values.items()
            if name not in _OWN and rounded(value) != rounded(defaults[name])
        }
    return SettingsReply({n: value for n, value in defaults.items() if n not in _OWN}, runs)


async def _curves(call: HiveCall, query: CurvesQuery) -> CurvesReply:
    """Return curves for charts: thinned to a number of points, with their extremes."""
    names, run = read_names(query.names), call.run
    return CurvesReply(await call.hive.curves.read(run.directory, names, query))


async def _many_curves(call: HiveCall, query: ManyCurvesQuery) -> ManyCurvesReply:
    """Return curves of several runs, as for one; a run that is refused has a reason instead."""
    names, runs = read_names(query.names), list(parts(query.runs))
    if len(runs) > MAX_RUNS:
        raise HiveRefused(f"{len(runs)} runs at once: {MAX_RUNS} at most", 422)
    most = len(runs) * len(names) * query.points
    if most > MAX_REPLY_POINTS:
        raise HiveRefused(
            f"{len(runs)} runs by {len(names)} names by {query.points} points are {most} points:"
            f" {MAX_REPLY_POINTS} at most, so ask for fewer at once",
            422,
        )
    asked = CurvesQuery(query.names, query.x, query.points, query.since)
    replies = []
    for name in runs:
        try:
            run = call.hive.run(name)
            call.caller.require_seen(name, run.document.owner, takes_part=False)
        except HiveRefused as refusal:
            replies.append(RunCurves(name, [], str(refusal)))
            continue
        replies.append(RunCurves(name, await call.hive.curves.read(run.directory, names, asked)))
    return ManyCurvesReply(replies)


async def _usage(call: HiveCall, _: Nothing) -> UsageReply:
    """Return the recent use of resources by the hive, for times when a page was open."""
    entries = list(call.hive.resources.entries)
    if call.caller.sees_all:
        return UsageReply(entries)
    own = {run for run, owner in call.hive.owners.items() if call.caller.sees(owner)}
    return UsageReply([of_runs(entry, own) for entry in entries])


_BY_ACT = AccessRole.ACT

PAGE_OPERATIONS: tuple[Operation[Any], ...] = (
    Operation("GET", "/settings", Nothing, SettingsReply, _settings, enough=_BY_ACT),
    Operation("GET", "/usage", Nothing, UsageReply, _usage, enough=_BY_ACT),
    Operation(
        "GET", "/curves", ManyCurvesQuery, ManyCurvesReply, _many_curves, enough=_BY_ACT,
        is_long=True,
    ),
    Operation(
        "GET", "/runs/{run_id}/curves", CurvesQuery, CurvesReply, _curves, enough=_BY_ACT,
        is_long=True,
    ),
    Operation(
        "GET", "/runs/{run_id}/events", HistoryQuery, HistoryReply, _history, enough=_BY_ACT,
        is_long=True, takes_part=True,
    ),
    Operation(
        "POST", "/runs/{run_id}/events", ModuleReport, HistoryEntry, _note_module, takes_part=True
    ),
    Operation("POST", "/runs/{run_id}/goal", GoalReached, RunReply, _note_goal),
    Operation("POST", "/runs/{run_id}/frames", FramesReport, RunReply, _note_frames),
    Operation("GET", "/runs/{run_id}/log", LogQuery, LogReply, _log, enough=_BY_ACT),
)  # fmt: skip


def page_routes(hive: Hive, site: SiteFiles) -> list[Route]:
    """Return the routes of event streams and of the page's files, which come after all others."""
    streams = EventStreams(Feed(hive))
    return [
        Route(EVENTS_PATH, endpoint=streams, methods=["GET"]),
        Route("/{path:path}", endpoint=site, methods=["GET"]),
    ]
