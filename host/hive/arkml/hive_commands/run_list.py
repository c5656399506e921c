"""The list of a hive's runs, one line for each, fitted to the width of a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from arkml.hive_commands.run_progress import progress_of

if TYPE_CHECKING:
    from arkml.cli.tables import ListColumn
    from arkml.hive.protocol.runs import RunInfo

_TO_MINUTES = len("2026-11-28 16:01")


def run_list(runs: Sequence[RunInfo]) -> tuple[Sequence[ListColumn], list[tuple[str, ...]]]:
    """Return the columns of a list of runs, and a row for each."""
    from arkml.cli.tables import ListColumn

    columns = (
        ListColumn("run"),
        ListColumn("name", 1, 14),
        ListColumn("status", 2),
        ListColumn("progress", 4, 14),
        ListColumn("return", 3, is_number=True),
        ListColumn("reason", 5, 20),
        ListColumn("rows", 7, is_number=True),
        ListColumn("updates", 9, is_number=True),
        ListColumn("started", 6),
        ListColumn("tags", 8, 8),
        ListColumn("game", 10, 8),
    )
    return columns, [_row(run) for run in runs]


def _row(run: RunInfo) -> tuple[str, ...]:
    from arkml.hive.protocol.runs import OVER

    reward, progress = run.latest.get("rollout/ep_rew_mean"), progress_of(run)
    name = f"{run.title} ({run.name})" if run.title else run.name
    marks = "★ " * bool(run.starred) + "archived: " * bool(run.archived)
    return (
        run.id,
        marks + name,
        status_of(run),
        " ".join(filter(None, (progress.bar, progress.text))),
        "" if reward is None else f"{reward:.4g}",
        run.reason if run.status in OVER else "",
        f"{run.rows:,}",
        f"{run.n_opts:,}",
        time_of(run.started_at)[:_TO_MINUTES],
        ", ".join(run.tags or ()),
        run.game,
    )


def status_of(run: RunInfo) -> str:
    """Return the status of a run, with its position in the queue for a learner."""
    return f"{run.status.value}, number {run.place}" if run.place else run.status.value


def time_of(nanoseconds: int) -> str:
    """Return a time since the Unix epoch as text in the local time zone, empty for 0."""
    if not nanoseconds:
        return ""
    moment = datetime.fromtimestamp(nanoseconds / 1e9, tz=UTC).astimezone()
    return moment.isoformat(" ", "seconds")
