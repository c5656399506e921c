"""A run as a list of runs tells it."""

from __future__ import annotations

from arkml.hive.protocol.runs import RunInfo
from arkml.server.run import Run


def info(run: Run) -> RunInfo:
    """What is told of a run now."""
    document = run.document
    request = document.request
    return RunInfo(
        id=document.id,
        name=request.name,
        game=request.game,
        status=run.status,
        features=request.settings.features,
        actions=request.settings.actions,
        started_at=document.started_at,
        ended_at=document.ended_at,
        seconds=request.seconds,
        rows=run.rows,
        lost=document.lost,
        policy_version=run.policy_version,
        n_opts=run.n_opts,
        sessions=run.present,
        reason=document.reason,
        seed=request.settings.seed,
        latest={name: value for name, (value, _) in run.measurements.latest.items()},
    )
