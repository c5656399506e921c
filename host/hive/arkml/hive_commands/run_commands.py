"""`arkml hive`: the commands that manage the runs of a hive, and `serve`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkml.base.output_files import write_file
from arkml.cli import options
from arkml.cli.exits import GOOD, Job, print_json
from arkml.cli.launch import TOKEN
from arkml.cli.units import counted, size
from arkml.errors import UsageError
from arkml.hive_commands import tokens
from arkml.hive_commands.backup_commands import backup, restore
from arkml.hive_commands.serve import serve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arkml.hive.client import HiveClient
    from arkml.hive.protocol.result_messages import SnapshotKind
    from arkml.hive.protocol.runs import RunInfo, WorkerInfo

_HERE = "127.0.0.1:12356"
_WORKER = ("worker", "status", "restarts", "rows", "rows/s", "version", "last reason")

RunName = Annotated[
    str, typer.Argument(metavar="RUN", help="The id of a run, or its name.", show_default=False)
]
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
    for command in (serve, list_, show, stop, metrics, snapshot, export, rm, backup, restore):
        hive.command(command.__name__.rstrip("_"))(command)
    tokens.register(hive)


def list_(hive: options.HiveAt = _HERE, as_json: options.Json = False) -> Job:
    """List the runs, the newest first."""

    def show_runs(client: HiveClient) -> int:
        runs = client.runs().result()
        if as_json:
            print_json({"runs": [run.as_json() for run in runs]})
            return GOOD
        from arkml.cli.tables import grid, show

        header = (
            "run", "name", "game", "status", "started", "rows", "updates", "mean return", "reason",
        )  # fmt: skip
        rows = [_row(run) for run in runs]
        shown = len(header) if any(row[-1] for row in rows) else len(header) - 1
        show(counted(len(runs), "run"), grid(header[:shown], [row[:shown] for row in rows]))
        return GOOD

    return partial(_run_with_client, hive, show_runs)


def show(run: RunName, hive: options.HiveAt = _HERE, as_json: options.Json = False) -> Job:
    """Show one run with its settings, status and best policy."""

    def show_run(client: HiveClient) -> int:
        details = client.details(_find(client, run).id).result()
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
        show(f"run {info.name}", facts((name, str(value)) for name, value in rows.items()))
        if details.workers:
            show(f"{info.workers} workers", grid(_WORKER, map(_worker_row, details.workers)))
        settings["parts"] = in_words(details.settings.parts)
        show("settings", facts((name, str(value)) for name, value in settings.items()))
        return GOOD

    return partial(_run_with_client, hive, show_run)


def stop(run: RunName, hive: options.HiveAt = _HERE, as_json: options.Json = False) -> Job:
    """Stop a run for all of its sessions; its checkpoints are kept."""

    def stop_run(client: HiveClient) -> int:
        info = _find(client, run)
        client.stop(info.id).result()
        return _print(f"run {info.name} ({info.id}) is stopped", {"stopped": info.id}, as_json)

    return partial(_run_with_client, hive, stop_run)


def metrics(run: RunName, hive: options.HiveAt = _HERE, as_json: options.Json = False) -> Job:
    """Show the newest value of every metric of a run."""

    def show_metrics(client: HiveClient) -> int:
        info = _find(client, run)
        values = client.metrics(info.id).result()
        if as_json:
            print_json({"metrics": {name: value for name, value, _ in values}})
            return GOOD
        from arkml.cli.tables import grid, show

        rows = [(name, f"{value:.6g}", f"{step:,}") for name, value, step in values]
        show(f"metrics of {info.name}", grid(("metric", "value", "at step"), rows))
        return GOOD

    return partial(_run_with_client, hive, show_metrics)


def snapshot(
    run: RunName, output: OutFile, hive: options.HiveAt = _HERE, as_json: options.Json = False
) -> Job:
    """Write the policy that the learner has now."""
    return partial(
        _run_with_client,
        hive,
        lambda client: _write(client, run, ("now", "latest"), output, as_json),
    )


def export(
    run: RunName, output: OutFile, hive: options.HiveAt = _HERE, as_json: options.Json = False
) -> Job:
    """Write the best policy of a run, or the newest one if none was rated."""
    return partial(
        _run_with_client,
        hive,
        lambda client: _write(client, run, ("best", "latest"), output, as_json),
    )


def rm(
    run: RunName,
    hive: options.HiveAt = _HERE,
    force: Annotated[bool, typer.Option("--force", help="Stop the run first.")] = False,
    as_json: options.Json = False,
) -> Job:
    """Delete a stopped run, with all of its files."""

    def delete(client: HiveClient) -> int:
        info = _find(client, run)
        client.delete(info.id, force=force).result()
        return _print(f"run {info.name} ({info.id}) is deleted", {"deleted": info.id}, as_json)

    return partial(_run_with_client, hive, delete)


def _run_with_client(hive: str, job: Callable[[HiveClient], int]) -> int:
    with _client(hive) as client:
        return job(client)


@contextmanager
def _client(hive: str) -> Iterator[HiveClient]:
    from arkml.hive.address import Address
    from arkml.hive.client import HiveClient

    address = Address.parse(hive, os.environ.get(TOKEN))
    client = HiveClient(lambda: address)
    try:
        yield client
    finally:
        client.close()


def _find(client: HiveClient, wanted: str) -> RunInfo:
    """Return the run of that id, or the newest of that name. Raises UsageError."""
    runs = client.runs().result()
    for run in runs:
        if run.id == wanted:
            return run
    for run in runs:
        if run.name == wanted:
            return run
    raise UsageError(f"there is no run {wanted!r}; `arkml hive list` shows {len(runs)}")


def _write(
    client: HiveClient, run: str, kinds: tuple[SnapshotKind, ...], output: Path, as_json: bool
) -> int:
    from arkml.training.outcome import fetch
    from arkml.training.training_files import packed

    info = _find(client, run)
    which, data = fetch(client, info.id, kinds)
    data = packed(data, output)
    write_file(output, data)
    text = f"{output}: {len(data):,} bytes, the {which} policy of {info.name}"
    return _print(text, {"file": str(output), "bytes": len(data), "which": which}, as_json)


def _print(text: str, document: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print_json(document)
    else:
        sys.stdout.write(f"{text}\n")
    return GOOD


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
    return (
        run.id,
        run.name,
        run.game,
        _status(run),
        _time(run.started_at),
        f"{run.rows:,}",
        f"{run.n_opts:,}",
        "" if reward is None else f"{reward:.4g}",
        run.reason if run.status in OVER else "",
    )


def _status(run: RunInfo) -> str:
    """Return the status of a run, with its position in the queue for a learner."""
    return f"{run.status.value}, number {run.place}" if run.place else run.status.value


def _time(nanoseconds: int) -> str:
    if not nanoseconds:
        return ""
    moment = datetime.fromtimestamp(nanoseconds / 1e9, tz=UTC).astimezone()
    return moment.isoformat(" ", "seconds")
