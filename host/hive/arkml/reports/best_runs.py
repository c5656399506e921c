"""The summary of a report: the best policy of each run, when it was made, and where it is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from arkml.hive.protocol.runs import Best
from arkml.reports.charts import shown
from arkml.reports.report_runs import Curve, ReportedRun, checkpoint_file
from arkml.training.results import EVALUATION_RETURN

HEADER = ("best score", "rated by", "reached", "policy", "checkpoint", "took")
"""The names of the columns."""

_UPDATES, _ELAPSED = "train/n_updates", "time/time_elapsed"
_NONE = "not rated"


def summary(runs: Sequence[ReportedRun]) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each run and the cells of its row, the highest scores first."""
    for run in sorted(runs, key=_score, reverse=True):
        best = run.best
        took = _duration((run.info.ended_at - run.info.started_at) / 1e9)
        lasted = took if run.info.ended_at else "not ended yet"
        if best is None:
            yield run.info.name, [_NONE, "", "", "", "", lasted]
            continue
        policy = f"version {best.version:,}, {best.n_opts:,} updates"
        cells = [shown(best.score), best.by, _reached(run, best), policy, _file(run), lasted]
        yield run.info.name, cells


def _score(run: ReportedRun) -> float:
    return -math.inf if run.best is None else run.best.score


def _reached(run: ReportedRun, best: Best) -> str:
    """Return the rows and the time after which the best policy was there."""
    rows = _rows_of(run, best)
    if rows is None:
        return "unknown"
    seconds = [value for at, value in run.curves.get(_ELAPSED, ()) if at <= rows]
    after = f", after {_duration(seconds[-1])}" if seconds else ""
    return f"{rows:,.0f} rows{after}"


def _rows_of(run: ReportedRun, best: Best) -> float | None:
    """Return the number of rows of the evaluation that gave the score, else of the updates."""
    rated = run.curves.get(EVALUATION_RETURN, ()) if best.by == "evaluation" else ()
    rows = [at for at, value in rated if math.isclose(value, best.score, rel_tol=1e-6)]
    return rows[0] if rows else _first(run.curves.get(_UPDATES, ()), best.n_opts)


def _first(curve: Curve, least: float) -> float | None:
    return next((at for at, value in curve if value >= least), None)


def _file(run: ReportedRun) -> str:
    """Return the checkpoint that was kept for the best policy."""
    kept = next((one for one in run.checkpoints if one.best), None)
    if kept is None:
        return "not kept"
    return kept.name if run.directory is None else str(checkpoint_file(run.directory, kept.n_opts))


def _duration(seconds: float) -> str:
    """Return a length of time, as the page of a hive writes it."""
    if seconds < 60:
        return f"{max(0, round(seconds))} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
