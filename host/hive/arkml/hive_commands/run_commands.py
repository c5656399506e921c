"""`arkml hive`: the commands that manage the runs of a hive, and `serve`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from arkml.base.output_files import write_file
from arkml.base.terminal import harmless
from arkml.cli import options
from arkml.cli.exits import GOOD, Job, print_json
from arkml.cli.units import counted, size
from arkml.errors import UsageError
from arkml.hive_commands import tokens
from arkml.hive_commands.backup_commands import backup, restore
from arkml.hive_commands.label_command import label, origin_rows, shown_goal
from arkml.hive_commands.run_client import HERE, RunName, find, print_result, run_with_client
from arkml.hive_commands.run_list import run_list, status_of, time_of
from arkml.hive_commands.run_progress import progress_of
from arkml.hive_commands.serve import serve

if TYPE_CHECKING:
    from arkml.hive.client import HiveClient
    from arkml.hive.protocol.result_messages import SnapshotKind
    from arkml.hive.protocol.runs import WorkerInfo

_EVENT = ("time", "kind", "what")
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
    """Add the commands of `arkml hive` to the application."""
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
    for command, *examples in (
        (
            serve,
            "serve --data runs",
            "serve --data runs --notify https://hooks.example/runs",
        ),
        (list_, "list", "list --archived --hive hive.example:12356", "list --json"),
        (show, "show walker", "show 77fb80b41e4b0b8a --json"),
        (events, "events walker", "events walker --kind stuck --kind collapsed"),
        (
            label,
            "label walker --title 'gamma 0.99, wider' --tag good --star",
            "label walker --note - < notes.txt",
            "label walker --untag good --archive",
        ),
        (stop, "stop walker"),
        (metrics, "metrics walker"),
        (snapshot, "snapshot walker -o now.onnx"),
        (export, "export walker -o walker.onnx", "export walker -o walker.crvo"),
        (rm, "rm walker --force"),
        (backup, "backup runs -o runs.tar"),
        (restore, "restore runs.tar --data runs"),
    ):
        epilog = options.epilog(*(f"arkml hive {example}" for example in examples))
        hive.command(command.__name__.rstrip("_"), epilog=epilog)(command)
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
        from arkml.cli.tables import listing, show, tell_dropped

        table, dropped = listing(*run_list(shown))
        hidden = len(runs) - len(shown)
        more = f", and {hidden} archived (--archived)" if hidden else ""
        show(counted(len(shown), "run") + more, table)
        tell_dropped(dropped)
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
        rows["started_at"] = time_of(info.started_at)
        rows["ended_at"] = time_of(info.ended_at)
        rows["status"] = status_of(info)
        rows["progress"] = " ".join(filter(None, (progress_of(info).bar, progress_of(info).text)))
        rows["memory"], rows["disk"] = size(info.memory), size(info.disk)
        rows["may last"] = f"{info.seconds:,} s" if info.seconds else None
        del rows["place"], rows["seconds"]
        rows["best"] = (
            "not rated yet"
            if best is None
            else f"{best.score:g} by {best.by}: version {best.version}, {best.n_opts:,} updates"
        )
        rows["updates_per_row"] = pace_of(info.latest) or "none yet"
        rows["module"] = details.module
        rows |= {"tags": ", ".join(info.tags or ()) or None, "goal": shown_goal(info)}
        known = ((name, str(value)) for name, value in rows.items() if value not in (None, "", []))
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


def events(
    run: RunName,
    hive: options.HiveAt = HERE,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="K", help="Show this kind only; may be given repeatedly."),
    ] = None,
    as_json: options.Json = False,
) -> Job:
    """Show what has happened to a run, the newest last: warnings, checkpoints, its end."""

    def show_events(client: HiveClient) -> int:
        from arkml.hive.protocol.page_messages import HistoryKind, NoticeKind

        info = find(client, run)
        found = client.events(info.id, 0).result()
        known = sorted({one.about or one.kind for one in found})
        others = {*get_args(HistoryKind), *get_args(NoticeKind)}  # which the run may have later
        if wrong := sorted(set(kind or ()) - others.union(known)):
            raise UsageError(
                f"--kind {wrong[0]!r:.80}: the events of {info.name} are {', '.join(known)}"
            )
        chosen = [one for one in found if not kind or (one.about or one.kind) in kind]
        if as_json:
            print_json({"events": [one.as_json() for one in chosen]})
            return GOOD
        from arkml.cli.tables import grid, show

        rows = [(time_of(one.at), one.about or one.kind, one.text) for one in chosen]
        show(f"{counted(len(rows), 'event')} of {info.shown_name}", grid(_EVENT, rows))
        return GOOD

    return partial(run_with_client, hive, show_events)


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
