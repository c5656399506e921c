"""`arkml report`: writes the curves and the configuration of runs into one HTML file."""

from __future__ import annotations

import os
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arkml.base.output_files import write_file
from arkml.base.terminal import harmless
from arkml.cli import options
from arkml.cli.exits import GOOD, Job, print_error, print_json
from arkml.cli.launch import TOKEN
from arkml.cli.units import counted
from arkml.errors import HiveUnreachable, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arkml.reports.report_runs import ReportedRun

_HERE = "127.0.0.1:12356"

_EPILOG = options.epilog(
    "arkml report walker -o walker.html",
    "arkml report walker walker-2 --hive hive.example:12356 -o both.html",
    "arkml report --data training/pendulum -o pendulum.html",
    notes="""
Runs that differ in their seed only become one curve, the median, with a band from the lowest to the
highest. The file loads nothing from elsewhere.
""",
)


def register(app: typer.Typer) -> None:
    """Add the command `arkml report` to the application."""
    app.command("report", epilog=_EPILOG)(command)


def command(
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="FILE", help="The file to write.", show_default=False
        ),
    ],
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN...",
            help="Ids or names of runs; all that are in --data if there are none.",
            show_default=False,
        ),
    ] = None,
    hive: options.HiveAt = _HERE,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="Read the data directory of a hive, or the directory of a training or of its"
            " --seeds, in its place. May be given several times.",
            show_default=False,
        ),
    ] = None,
    as_json: options.Json = False,
) -> Job:
    """Write the curves, the configuration and the checkpoints of runs into one HTML file."""
    names = runs or []
    if not names and not data:
        raise UsageError("name a run, or a directory with --data (see `arkml report --help`)")
    return partial(_report, names, hive, data or [], output, as_json=as_json)


def _report(
    names: Sequence[str], hive: str, data: Sequence[Path], output: Path, *, as_json: bool
) -> int:
    from arkml.base.release import RELEASE
    from arkml.reports.report_page import make_page

    runs = _read(names, hive, data)
    page = make_page(runs, RELEASE)
    write_file(output, page)
    if as_json:
        ids = [run.info.id for run in runs]
        print_json({"file": str(output), "bytes": len(page), "runs": ids})
    else:
        size = f"{len(page):,} bytes, {counted(len(runs), 'run')}"
        sys.stdout.write(f"{harmless(str(output))}: {size}\n")
    return GOOD


def _read(names: Sequence[str], hive: str, data: Sequence[Path]) -> list[ReportedRun]:
    from arkml.reports.report_runs import read_from_directory, read_from_hive

    if data:
        runs = [
            run for directory in data for run in read_from_directory(directory, names, print_error)
        ]
        if not runs:
            raise UsageError(f"there are no runs in {', '.join(map(str, data))}")
        return runs
    from arkml.hive.address import Address
    from arkml.hive.client import HiveClient

    address = Address.parse(hive, os.environ.get(TOKEN))
    client = HiveClient(lambda: address)
    try:
        return read_from_hive(client, names, hive)
    except HiveUnreachable as error:
        if directory := next((name for name in names if Path(name).is_dir()), None):
            raise UsageError(
                f"{error}; {directory} is a directory, which --data {shlex.quote(directory)} reads"
            ) from error
        raise
    finally:
        client.close()
