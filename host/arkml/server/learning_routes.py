"""Routes of what a run has learned: policies, metrics, evaluations, checkpoints, the audit."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from arkml.errors import HiveError, HiveRefused, ProtocolError
from arkml.hive.protocol.results import (
    CheckpointInfo,
    CheckpointList,
    CheckpointReply,
    EvaluationReply,
    EvaluationReport,
    MetricsReply,
    MetricValue,
    PolicyQuery,
    ReplayAudit,
    SeriesPoint,
    SeriesQuery,
    SeriesReply,
    SnapshotQuery,
)
from arkml.hive.protocol.runs import POLL_SECONDS
from arkml.hive.protocol.wire import MAX_COUNT, Nothing
from arkml.server.checkpoints import checkpoint_name, checkpoints
from arkml.server.hive import Hive
from arkml.server.routes import ONNX, Operation
from arkml.server.scores import mean

_PATIENCE = 20.0
_LONG_PATIENCE = 60.0
"""Seconds for the reply of a learner that may be busy with a large network."""


async def _policy(hive: Hive, run_id: str, query: PolicyQuery) -> Response:
    """
    Return the newest policy version as an ONNX file, or 204 if none is above `after`.

    The headers X-Arkml-Version, X-Arkml-N-Opts and X-Arkml-Sha256 describe the file; X-Arkml-Status
    is the status of the run.
    """
    run = hive.run(run_id)

    def is_due() -> bool:
        newest = run.policies.newest
        return (newest is not None and newest.version > query.after) or run.is_ending

    if math.isfinite(query.wait):
        await run.changes.wait(is_due, min(max(query.wait, 0.0), POLL_SECONDS))
    newest = run.policies.newest
    headers = {"X-Arkml-Status": str(run.status)}
    if newest is None or newest.version <= query.after:
        return Response(status_code=204, headers=headers)
    headers["X-Arkml-Version"] = str(newest.version)
    headers["X-Arkml-N-Opts"] = str(newest.n_opts)
    headers["X-Arkml-Sha256"] = newest.sha256
    return Response(newest.data, media_type=ONNX, headers=headers)


async def _snapshot(hive: Hive, run_id: str, query: SnapshotQuery) -> Response:
    """Return a policy as an ONNX file."""
    run = hive.run(run_id)
    if query.which == "now":
        reply = await run.supervisor.ask("export", _PATIENCE)
        try:
            exported = await asyncio.to_thread(run.policies.exported, reply)
        except HiveError as error:
            raise HiveRefused(f"the learner exported no policy: {error}", 503) from error
        return Response(exported, media_type=ONNX)
    sources: dict[str, Callable[[], bytes | None]] = {
        "best": run.policies.best,
        "latest": lambda: run.policies.newest.data if run.policies.newest else None,
    }
    data = await asyncio.to_thread(sources[query.which])
    if data is None:
        raise HiveRefused(f"run {run.document.id} has no {query.which} policy yet", 404)
    return Response(data, media_type=ONNX)


async def _metrics(hive: Hive, run_id: str, _: Nothing) -> MetricsReply:
    """Return the newest value of every metric."""
    latest = hive.run(run_id).measurements.latest
    return MetricsReply([MetricValue(name, *newest) for name, newest in latest.items()])


async def _series(hive: Hive, run_id: str, query: SeriesQuery) -> SeriesReply:
    """Return the values of one metric, by step."""
    since = min(max(query.since, 0), MAX_COUNT)
    points = await hive.run(run_id).measurements.series(query.name, since)
    return SeriesReply([SeriesPoint(*point) for point in points])


async def _evaluate(hive: Hive, run_id: str, report: EvaluationReport) -> EvaluationReply:
    """Rate a policy version by the episodes that it has played."""
    run = hive.run(run_id)
    best = await asyncio.to_thread(run.scores.evaluated, report.version, report.returns)
    step = run.rows
    points = [
        ("eval/mean_reward", step, mean(report.returns)),
        ("eval/mean_ep_length", step, mean(report.lengths)),
    ]
    await run.measurements.add(points)
    run.hearing.record(points)
    if best is not None:
        run.document.best = best
        run.supervisor.send("checkpoint", req=0, best=True)
        await run.save()
    return EvaluationReply(best is not None)


async def _save(hive: Hive, run_id: str, _: Nothing) -> CheckpointReply:
    """Save a checkpoint now."""
    reply = await hive.run(run_id).supervisor.ask("checkpoint", _LONG_PATIENCE)
    return CheckpointReply(checkpoint_name(run_id, int(reply["n_opts"])))


async def _saved(hive: Hive, run_id: str, _: Nothing) -> CheckpointList:
    """List the checkpoints of a run, the oldest first."""
    saved = checkpoints(hive.run(run_id).directory)
    return CheckpointList([CheckpointInfo(**one) for one in saved])


async def _audit(hive: Hive, run_id: str, _: Nothing) -> ReplayAudit:
    """Compare the log of a run with the replay buffer of its learner."""
    run = hive.run(run_id)
    if run.document.is_over:
        raise HiveRefused(f"run {run_id} is {run.status}: it has no learner", 503)
    log = run.log or await run.wake()
    run.rouse()
    held = await run.supervisor.ask("audit", _LONG_PATIENCE)
    sessions = {
        str(index): {name: getattr(tally, name) for name in ("acked", "rows", "refused", "dropped")}
        for index, tally in sorted(log.tallies.items())
    }
    try:
        return ReplayAudit.from_json({**held, "sessions": sessions, "committed": log.end})
    except ProtocolError as error:
        raise HiveRefused(f"the learner's audit cannot be used: {error}", 503) from error


LEARNING_OPERATIONS: tuple[Operation[Any], ...] = (
    Operation("GET", "/runs/{run_id}/policy", PolicyQuery, ONNX, _policy, (200, 204)),
    Operation("GET", "/runs/{run_id}/snapshot", SnapshotQuery, ONNX, _snapshot),
    Operation("GET", "/runs/{run_id}/metrics", Nothing, MetricsReply, _metrics),
    Operation("GET", "/runs/{run_id}/series", SeriesQuery, SeriesReply, _series),
    Operation("POST", "/runs/{run_id}/evaluations", EvaluationReport, EvaluationReply, _evaluate),
    Operation("POST", "/runs/{run_id}/checkpoints", Nothing, CheckpointReply, _save),
    Operation("GET", "/runs/{run_id}/checkpoints", Nothing, CheckpointList, _saved),
    Operation("GET", "/runs/{run_id}/memory", Nothing, ReplayAudit, _audit),
)
