"""Routes of the results of a run: policies, metrics, evaluations, checkpoints, the audit."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from starlette.responses import Response

from arkml.errors import HiveError, HiveRefused, ProtocolError
from arkml.hive.protocol.histograms import HistogramQuery, HistogramReply
from arkml.hive.protocol.replay_messages import ReplayList, ReplayQuery, ReplayReport
from arkml.hive.protocol.result_messages import (
    CheckpointList,
    CheckpointReply,
    EvaluationReply,
    EvaluationReport,
    EvaluationStart,
    MetricsReply,
    MetricValue,
    PolicyQuery,
    ReplayAudit,
    SeriesPoint,
    SeriesQuery,
    SeriesReply,
    SnapshotQuery,
)
from arkml.hive.protocol.runs import POLL_SECONDS, RunReply
from arkml.hive.protocol.wire import MAX_COUNT, Nothing
from arkml.server.access.callers import AccessRole
from arkml.server.checkpoints import checkpoint_name, list_checkpoints
from arkml.server.learner_events import read_policy_file
from arkml.server.routes import GZIP, ONNX, HiveCall, Operation

_TIMEOUT = 20.0
_LONG_TIMEOUT = 60.0
"""Seconds for the reply of a learner that may be busy with a large network."""


async def _policy(call: HiveCall, query: PolicyQuery) -> Response:
    """
    Return the newest policy version as an ONNX file, or 204 if none is above `after`.

    The headers X-Arkml-Version, X-Arkml-N-Opts and X-Arkml-Sha256 describe the file; X-Arkml-Status
    is the status of the run.
    """
    run = call.run
    seconds = min(max(query.wait, 0.0), POLL_SECONDS) if math.isfinite(query.wait) else 0.0
    newer = await run.newer_policy(query.after, seconds)
    headers = {"X-Arkml-Status": str(run.status)}
    if newer is None:
        return Response(status_code=204, headers=headers)
    headers["X-Arkml-Version"] = str(newer.version)
    headers["X-Arkml-N-Opts"] = str(newer.n_opts)
    headers["X-Arkml-Sha256"] = newer.sha256
    return Response(newer.data, media_type=ONNX, headers=headers)


async def _snapshot(call: HiveCall, query: SnapshotQuery) -> Response:
    """Return a policy as an ONNX file."""
    run = call.run
    if query.which == "now":
        reply = await run.request("export", _TIMEOUT)
        try:
            exported = await asyncio.to_thread(run.policies.read_export, read_policy_file(reply))
        except HiveError as error:
            raise HiveRefused(f"the learner exported no policy: {error}", 503) from error
        return Response(exported, media_type=ONNX)
    if query.which == "best":
        data = await run.best_policy()
    else:
        data = run.policies.newest.data if run.policies.newest else None
    if data is None:
        raise HiveRefused(f"run {run.document.id} has no {query.which} policy yet", 404)
    return Response(data, media_type=ONNX)


async def _metrics(call: HiveCall, _: Nothing) -> MetricsReply:
    """Return the newest value of every metric."""
    latest = call.run.metrics.latest
    return MetricsReply([MetricValue(name, *newest) for name, newest in latest.items()])


async def _series(call: HiveCall, query: SeriesQuery) -> SeriesReply:
    """Return the values of one metric, by step."""
    since = min(max(query.since, 0), MAX_COUNT)
    points = await call.run.metrics.series(query.name, since)
    return SeriesReply([SeriesPoint(*point) for point in points])


async def _histograms(call: HiveCall, query: HistogramQuery) -> HistogramReply:
    """List the histograms of features and actions, and return one of them over time."""
    since = min(max(query.since, 0), MAX_COUNT)
    return await call.run.histograms.reply(query.name, since)


async def _begin_evaluation(call: HiveCall, start: EvaluationStart) -> RunReply:
    """Keep a policy version until the report of its evaluation, which may be the best."""
    await call.run.begin_evaluation(start.version)
    return RunReply(call.run.info())


async def _evaluate(call: HiveCall, report: EvaluationReport) -> EvaluationReply:
    """Rate a policy version by the episodes that it has played."""
    run = call.run
    return EvaluationReply(await run.evaluate(report))


async def _keep_replay(call: HiveCall, report: ReplayReport) -> ReplayList:
    """Keep the replay of an evaluated episode: the best, the worst and the latest stay."""
    return ReplayList(await call.run.keep_replay(report))


async def _replays(call: HiveCall, _: Nothing) -> ReplayList:
    """List the replays that a run keeps."""
    return ReplayList(await asyncio.to_thread(call.run.replays.kept))


async def _replay(call: HiveCall, query: ReplayQuery) -> Response:
    """Return the document of a replay, JSON packed by gzip."""
    content = await asyncio.to_thread(call.run.replays.read, query.which, query.version)
    return Response(content, media_type=GZIP)


async def _save(call: HiveCall, _: Nothing) -> CheckpointReply:
    """Save a checkpoint now."""
    reply = await call.own_run("checkpoint").request("checkpoint", _LONG_TIMEOUT)
    return CheckpointReply(checkpoint_name(call.key, int(reply["n_opts"])))


async def _saved(call: HiveCall, _: Nothing) -> CheckpointList:
    """List the checkpoints of a run, the oldest first."""
    return CheckpointList(list_checkpoints(call.run.directory))


async def _audit(call: HiveCall, _: Nothing) -> ReplayAudit:
    """Compare the log of a run with the replay buffer of its learner."""
    values = await call.run.audit(_LONG_TIMEOUT)
    try:
        return ReplayAudit.from_json(values)
    except ProtocolError as error:
        raise HiveRefused(f"the learner's audit cannot be used: {error}", 503) from error


_BY_ACT = AccessRole.ACT

LEARNING_OPERATIONS: tuple[Operation[Any], ...] = (
    Operation(
        "GET", "/runs/{run_id}/policy", PolicyQuery, ONNX, _policy, (200, 204), _policy, _BY_ACT,
        takes_part=True,
    ),
    Operation(
        "GET", "/runs/{run_id}/snapshot", SnapshotQuery, ONNX, _snapshot, worker=_snapshot,
        enough=_BY_ACT, takes_part=True,
    ),
    Operation(
        "GET", "/runs/{run_id}/metrics", Nothing, MetricsReply, _metrics, worker=_metrics,
        enough=_BY_ACT, takes_part=True,
    ),
    Operation(
        "GET", "/runs/{run_id}/series", SeriesQuery, SeriesReply, _series, enough=_BY_ACT,
        takes_part=True,
    ),
    Operation(
        "GET", "/runs/{run_id}/histograms", HistogramQuery, HistogramReply, _histograms,
        enough=_BY_ACT, is_long=True,
    ),
    Operation(
        "POST", "/runs/{run_id}/evaluations", EvaluationReport, EvaluationReply, _evaluate,
        takes_part=True,
    ),
    Operation(
        "POST", "/runs/{run_id}/evaluations/begin", EvaluationStart, RunReply, _begin_evaluation,
        takes_part=True,
    ),
    Operation(
        "POST", "/runs/{run_id}/replays", ReplayReport, ReplayList, _keep_replay, takes_part=True
    ),
    Operation("GET", "/runs/{run_id}/replays", Nothing, ReplayList, _replays, enough=_BY_ACT),
    Operation("GET", "/runs/{run_id}/replay", ReplayQuery, GZIP, _replay, enough=_BY_ACT),
    Operation("POST", "/runs/{run_id}/checkpoints", Nothing, CheckpointReply, _save),
    Operation(
        "GET", "/runs/{run_id}/checkpoints", Nothing, CheckpointList, _saved, enough=_BY_ACT,
        takes_part=True,
    ),
    Operation("GET", "/runs/{run_id}/memory", Nothing, ReplayAudit, _audit),
)  # fmt: skip
