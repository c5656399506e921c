"""`arkml hive`: the commands that manage the runs of a hive, and `serve`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arkml.base.output_files import write_file
from arkml.base.terminal import harmless
from arkml.cli import options
from arkml.cli.exits import GOOD, Job, print_json
from arkml.cli.units import counted, size
from arkml.hive_commands import tokens
from arkml.hive_commands.backup_commands import backup, restore
from arkml.hive_commands.label_command import label, origin_rows, shown_goal
from arkml.hive_commands.run_client import HERE, RunName, find, print_result, run_with_client
from arkml.hive_commands.serve import serve

if TYPE_CHECKING:
    from arkml.hive.client import HiveClient
    from arkml.hive.protocol.result_messages import SnapshotKind
    from arkml.hive.protocol.runs import RunInfo, WorkerInfo

_AT_TIMES = ("", "tags", "reason")
"""The columns of the list that are left out where they are empty for all runs."""

_WORKER = ("worker", "status", "restarts", "rows", "rows/s", "version", "last reason")

OutFile = Annotated[
    Path,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="The file to write; .crvo packs it.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands of `arkml hive`."""
    hive = options.add_group(
        app,
        "hive",
        "Serve a hive, or manage the runs of one.",
        epilog=options.epilog(
            "arkml hive serve --data runs",
            "arkml hive list",
            "arkml hive export walker -o walker.onnx",
            "arkml hive backup runs -o runs.tar",
        ),
    )
    for command in (
        serve, list_, show, label, stop, metrics, snapshot, export, rm, backup, restore,
    ):  # fmt: skip
        hive.command(command.__name__.rstrip("_"))(command)
    tokens.register(hive)


def list_(
    hive: options.HiveAt = HERE,
    archived: Annotated[
        bool, typer.Option("--archived", help="List the runs that are archived, too.")
    ] = False,
    as_json: options.Json = False,
) -> Job:
    """List the runs, those with a star first, then the newest first."""

    def show_runs(client: HiveClient) -> int:
        runs = client.runs().result()
        shown = [run for run in runs if archived or not run.archived]
        shown.sort(key=lambda run: not run.starred)
        if as_json:
            print_json({"runs": [run.as_json() for run in shown]})
            return GOOD
        from arkml.cli.tables import grid, show

        header = (
            "", "run", "name", "tags", "game", "status", "started", "rows", "updates",
            "mean return", "reason",
        )  # fmt: skip
        rows = [_row(run) for run in shown]
        needed = [n for n, name in enumerate(header) if name not in _AT_TIMES or _has(rows, n)]
        hidden = len(runs) - len(shown)
        more = f", and {hidden} archived (--archived)" if hidden else ""
        show(
            counted(len(shown), "run") + more,
            grid([header[n] for n in needed], [[row[n] for n in needed] for row in rows]),
        )
        return GOOD

    return partial(run_with_client, hive, show_runs)


def show(run: RunName, hive: options.HiveAt = HERE, as_json: options.Json = False) -> Job:
    """Show one run with its settings, status and best policy."""

    def show_run(client: HiveClient) -> int:
        details = client.details(find(client, run).id).result()
        if as_json:
            print_json(details.as_json())
            return GOOD
        from arkml.cli.tables import facts, grid, show
        from arkml.cli.training_display import pace_of
        from arkml.hive.protocol.parts import in_words

        info, settings, best = details.run, details.settings.as_json(), details.best
        rows = {name: value for name, value in info.as_json().items() if name != "latest"}
        rows["started_at"] = _time(info.started_at)
        rows["ended_at"] = _time(info.ended_at)
        rows["status"] = _status(info)
        rows["memory"], rows["disk"] = size(info.memory), size(info.disk)
        del rows["place"]
        rows["best"] = (
            "not rated yet"
            if best is None
            else f"{best.score:g} by {best.by}: version {best.version}, {best.n_opts:,} updates"
        )
        rows["updates_per_row"] = pace_of(info.latest) or "none yet"
        rows["module"] = details.module or "none uploaded"
        rows |= {"tags": ", ".join(info.tags or ()) or None, "goal": shown_goal(info)}
        known = ((name, str(value)) for name, value in rows.items() if value is not None)
        show(f"run {info.shown_name}", facts(known))
        if details.note:
            sys.stdout.write(f"note\n\n{harmless(details.note)}\n\n")
        if came := list(origin_rows(details)):
            show("where it came from", facts(came))
        if details.workers:
            show(f"{info.workers} workers", grid(_WORKER, map(_worker_row, details.workers)))
        settings["parts"] = in_words(details.settings.parts)
        show("settings", facts((name, str(value)) for name, value in settings.items()))
        return GOOD

    return partial(run_with_client, hive, show_run)


def stop(run: RunName, hive: options.HiveAt = HERE, as_json: options.Json = False) -> Job:
    """Stop a run for all of its sessions; its checkpoints are kept."""

    def stop_run(client: HiveClient) -> int:
        info = find(client, run)
        client.stop(info.id).result()
        return print_result(
            f"run {info.name} ({info.id}) is stopped", {"stopped": info.id}, as_json
        )

    return partial(run_with_client, hive, stop_run)


def metrics(run: RunName, hive: options.HiveAt = HERE, as_json: options.Json = False) -> Job:
    """Show the newest value of every metric of a run."""

    def show_metrics(client: HiveClient) -> int:
        info = find(client, run)
        values = client.metrics(info.id).result()
        if as_json:
            print_json({"metrics": {name: value for name, value, _ in values}})
            return GOOD
        from arkml.cli.tables import grid, show

        rows = [(name, f"{value:.6g}", f"{step:,}") for name, value, step in values]
        show(f"metrics of {info.name}", grid(("metric", "value", "at step"), rows))
        return GOOD

    return partial(run_with_client, hive, show_metrics)


def snapshot(
    run: RunName, output: OutFile, hive: options.HiveAt = HERE, as_json: options.Json = False
) -> Job:
    """Write the policy that the learner has now."""
    return partial(
        run_with_client,
        hive,
        lambda client: _write(client, run, ("now", "latest"), output, as_json),
    )


def export(
    run: RunName, output: OutFile, hive: options.HiveAt = HERE, as_json: options.Json = False
) -> Job:
    """Write the best policy of a run, or the newest one if none was rated."""
    return partial(
        run_with_client,
        hive,
        lambda client: _write(client, run, ("best", "latest"), output, as_json),
    )


def rm(
    run: RunName,
    hive: options.HiveAt = HERE,
    force: Annotated[bool, typer.Option("--force", help="Stop the run first.")] = False,
    as_json: options.Json = False,
) -> Job:
    """Delete a stopped run, with all of its files."""

    def delete(client: HiveClient) -> int:
        info = find(client, run)
        client.delete(info.id, force=force).result()
        return print_result(
            f"run {info.name} ({info.id}) is deleted", {"deleted": info.id}, as_json
        )

    return partial(run_with_client, hive, delete)


def _write(
    client: HiveClient, run: str, kinds: tuple[SnapshotKind, ...], output: Path, as_json: bool
) -> int:
    from arkml.training.outcome import fetch
    from arkml.training.training_files import packed

    info = find(client, run)
    which, data = fetch(client, info.id, kinds)
    data = packed(data, output)
    write_file(output, data)
    text = f"{output}: {len(data):,} bytes, the {which} policy of {info.name}"
    return print_result(text, {"file": str(output), "bytes": len(data), "which": which}, as_json)


def _worker_row(worker: WorkerInfo) -> tuple[str, ...]:
    return (
        str(worker.number),
        "alive" if worker.is_alive else "ended",
        str(worker.incarnation),
        f"{worker.rows:,}",
        f"{worker.rows_per_second:,.0f}",
        str(worker.policy_version),
        worker.reason,
    )


def _row(run: RunInfo) -> tuple[str, ...]:
    from arkml.hive.protocol.runs import OVER

    reward = run.latest.get("rollout/ep_rew_mean")
    name = f"{run.title} ({run.name})" if run.title else run.name
    marks = " ".join(["★"] * bool(run.starred) + ["archived"] * bool(run.archived))
    return (
        marks,
        run.id,
        name,
        ", ".join(run.tags or ()),
        run.game,
        _status(run),
        _time(run.started_at)[: len("2026-11-28 16:01")],
        f"{run.rows:,}",
        f"{run.n_opts:,}",
        "" if reward is None else f"{reward:.4g}",
        run.reason if run.status in OVER else "",
    )


def _has(rows: list[tuple[str, ...]], column: int) -> bool:
    return any(row[column] for row in rows)


def _status(run: RunInfo) -> str:
    """Return the status of a run, with its position in the queue for a learner."""
    return f"{run.status.value}, number {run.place}" if run.place else run.status.value


def _time(nanoseconds: int) -> str:
    if not nanoseconds:
        return ""
    moment = datetime.fromtimestamp(nanoseconds / 1e9, tz=UTC).astimezone()
    return moment.isoformat(" ", "seconds")
